"""Switches of the test run."""

import signal
import sys

import pytest

from kbeval import cli


def pytest_addoption(parser):
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails the run")


def pytest_configure():
    """A shell that starts the tests in the background takes Ctrl-C from all their children."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if session.config.getoption("--no-skips") and skipped and exitstatus == 0:
        reporter.write_line(f"{len(skipped)} tests were skipped where none may be")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def kbeval(monkeypatch, capsys):
    """Run a command in this process: exit code, stdout, stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["kbeval", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        shown = capsys.readouterr()
        return left.value.code, shown.out, shown.err

    return call

"""Settings from yml: the specs' defaults, and every wrong value refused by its full key (TH-03)."""

from pathlib import Path

import pytest
import yaml

from kbeval.config import L0Settings, Normalization, Retrieval, Session, Settings, load_settings
from kbeval.errors import ConfigError
from kbeval.retrieval.grading import l2_to_similarity

CASES = Path(__file__).parent / "cases" / "TH-03"


def refused(source):
    with pytest.raises(ConfigError) as error:
        load_settings(source)
    message = str(error.value)
    assert "\n" not in message
    return message


def written(folder, text):
    path = folder / "settings.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


# TH-03


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("max-zero", "max-l2-distance: got 0; input should be greater than 0"),
        ("max-negative", "max-l2-distance: got -1; input should be greater than 0"),
        ("max-text", "max-l2-distance: got 'two'; input should be a valid number"),
        (
            "percent",
            "highly-relevant-threshold: got 75; input should be less than or equal to 1",
        ),
    ],
)
def test_th03_a_value_off_the_scale_is_refused_with_key_value_and_range(file, said):
    path = CASES / f"{file}.yml"
    assert refused(path) == f"{path}: retrieval.normalization.{said}"


def test_th03_thresholds_in_the_wrong_order_are_refused_not_swapped():
    path = CASES / "swapped.yml"
    assert refused(path) == (
        f"{path}: retrieval.normalization: reference-threshold 0.8 is above "
        "highly-relevant-threshold 0.6; allowed is 0 <= reference <= highly-relevant <= 1"
    )


def test_th03_a_misspelt_key_is_named_with_the_nearest_known_one():
    path = CASES / "misspelt.yml"
    assert refused(path) == (
        f"{path}: retrieval.normalization: unknown key 'higly-relevant-threshold'; did you mean "
        "'highly-relevant-threshold'? known keys are distance, max-l2-distance, "
        "highly-relevant-threshold, reference-threshold"
    )


def test_th03_a_valid_override_changes_the_result():
    normalization = load_settings(CASES / "valid.yml").retrieval.normalization
    assert normalization == Normalization(max_l2_distance=1.5)
    assert l2_to_similarity(0.75, normalization.max_l2_distance) == 0.5


# defaults and overrides


def test_the_defaults_are_those_of_the_specs():
    assert Settings().to_yml() == {
        "retrieval": {
            "limit": 3,
            "supplement-content": "full",
            "normalization": {
                "distance": "l2",
                "max-l2-distance": 2.0,
                "highly-relevant-threshold": 0.75,
                "reference-threshold": 0.5,
            },
            "l0": {
                "precise-requires": "unique",
                "fields": ["title", "aliases", "keywords", "tags", "covers", "stem"],
                "min-cjk-length": 2,
                "min-length": 3,
            },
        },
        "session": {
            "max-sessions": 10_000,
            "memory": "documents",
            "mark": "all",
            "known-by": "version",
            "horizon-turns": None,
            "horizon-tokens": None,
        },
        "locale": "zh",
    }


def test_an_override_leaves_everything_else_as_it_was():
    changed = load_settings({"retrieval": {"normalization": {"reference-threshold": 0.4}}})
    expected = Settings().to_yml()
    expected["retrieval"]["normalization"]["reference-threshold"] = 0.4
    assert changed.to_yml() == expected


def test_settings_survive_the_way_to_a_yml_file_and_back(tmp_path):
    settings = Settings(
        retrieval=Retrieval(
            limit=1,
            supplement_content="passage",
            normalization=Normalization(
                distance="squared_l2",
                max_l2_distance=4.0,
                highly_relevant_threshold=0.9,
                reference_threshold=0.9,
            ),
            l0=L0Settings(
                precise_requires="unique-and-nearest", fields=("title", "stem"), min_length=5
            ),
        ),
        session=Session(max_sessions=7, mark="primary", known_by="path", horizon_turns=4),
        locale="en",
    )
    path = written(tmp_path, yaml.safe_dump(settings.to_yml()))
    assert load_settings(path) == settings
    assert load_settings(settings.to_yml()) == settings


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Settings().locale = "en"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty file"),
        pytest.param("# only a comment\n", id="only a comment"),
        pytest.param("retrieval: {}\n", id="empty section"),
        pytest.param(b"\xef\xbb\xbflocale: zh\r\n", id="BOM and CRLF"),
        pytest.param("retrieval: {normalization: {max-l2-distance: 2}}", id="a whole number"),
    ],
)
def test_what_says_nothing_new_gives_the_defaults(tmp_path, text):
    assert load_settings(written(tmp_path, text)) == Settings()
    assert load_settings(None) == Settings()


# what is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("- a\n- b\n", "a mapping is expected, found list", id="a list"),
        pytest.param("locale\n", "a mapping is expected, found str", id="a word"),
        pytest.param("a: b: c\n", "not valid YAML", id="no yml"),
        pytest.param("retrieval:\n\tlimit: 3\n", "not valid YAML", id="a tab"),
        pytest.param(b"locale: \xff\n", "cannot be read", id="no UTF-8"),
        pytest.param(
            "retreival: {limit: 3}\n",
            "unknown key 'retreival'; did you mean 'retrieval'? "
            "known keys are retrieval, session, locale",
            id="unknown section",
        ),
        pytest.param(
            "normalization: {max-l2-distance: 1}\n",
            "unknown key 'normalization'; known keys are retrieval, session, locale",
            id="a section without the one around it",
        ),
        pytest.param(
            "retrieval: {l0: {precise-require: unique}}\n",
            "retrieval.l0: unknown key 'precise-require'; did you mean 'precise-requires'? "
            "known keys are precise-requires, fields, min-cjk-length, min-length",
            id="misspelt key two levels down",
        ),
        pytest.param(
            "retrieval: {l0: {precise-requires: nearest}}\n",
            "retrieval.l0.precise-requires: got 'nearest'; input should be 'unique' or "
            "'unique-and-nearest'",
            id="a word that is none of the allowed",
        ),
        pytest.param(
            "retrieval: {normalization: {distance: cosine}}\n",
            "retrieval.normalization.distance: got 'cosine'; input should be 'l2' or 'squared_l2'",
            id="another metric",
        ),
        pytest.param(
            "locale: de\n", "locale: got 'de'; input should be 'zh' or 'en'", id="a third language"
        ),
        pytest.param(
            'retrieval: {normalization: {reference-threshold: "0.5"}}\n',
            "retrieval.normalization.reference-threshold: got '0.5'; "
            "input should be a valid number",
            id="a number written as text",
        ),
        pytest.param(
            "retrieval: {normalization: {max-l2-distance: .nan}}\n",
            "retrieval.normalization.max-l2-distance: got nan; input should be",
            id="NaN",
        ),
        pytest.param(
            "retrieval: {normalization: {max-l2-distance: .inf}}\n",
            "retrieval.normalization.max-l2-distance: got inf; input should be",
            id="infinity",
        ),
        pytest.param(
            "retrieval: {normalization: {reference-threshold: true}}\n",
            "retrieval.normalization.reference-threshold: got True; ",
            id="a flag for a number",
        ),
        pytest.param(
            "retrieval: {limit: 0}\n",
            "retrieval.limit: got 0; input should be greater than or equal to 1",
            id="no document at all",
        ),
        pytest.param(
            "retrieval: {limit: 2.5}\n", "retrieval.limit: got 2.5; ", id="half a document"
        ),
        pytest.param("retrieval: 3\n", "retrieval: got 3; ", id="a number for a section"),
        pytest.param("retrieval:\n", "retrieval: got None; ", id="a section left empty"),
        pytest.param(
            "session: {max-sessions: 0}\n", "session.max-sessions: got 0; ", id="no session"
        ),
        pytest.param(
            "retrieval: {normalization: {reference-threshold: 0.8}}\n",
            "retrieval.normalization: reference-threshold 0.8 is above "
            "highly-relevant-threshold 0.75",
            id="above the default of the other",
        ),
    ],
)
def test_a_wrong_file_is_one_line_with_file_key_and_what_is_allowed(tmp_path, text, said):
    path = written(tmp_path, text)
    message = refused(path)
    assert message.startswith(f"{path}: {said}")


def test_a_field_of_a_list_is_named_by_its_place():
    message = refused({"retrieval": {"l0": {"fields": ["title", "titel"]}}})
    assert message.startswith("retrieval.l0.fields.1: got 'titel'; input should be 'title'")


def test_a_missing_file_is_named(tmp_path):
    assert refused(tmp_path / "none.yml") == f"{tmp_path / 'none.yml'}: no such file"


def test_a_folder_is_no_settings_file(tmp_path):
    assert refused(tmp_path).startswith(f"{tmp_path}: cannot be read")

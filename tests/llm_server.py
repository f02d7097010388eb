"""An OpenAI-compatible server on 127.0.0.1: it answers what it was told and keeps what came."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(content, finish_reason="stop", **message):
    """The body of a reply with this content."""
    message = {"role": "assistant", "content": content, **message}
    return body([{"index": 0, "finish_reason": finish_reason, "message": message}])


def body(choices):
    """The body of a reply with these choices."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "stand-in",
        "choices": choices,
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


class Answer:
    """One answer: after `delay` seconds a status, headers and a body (an object, or raw text).

    `hang` never answers until the server ends; `cut` sends that many bytes and closes;
    `drip` sends a byte every so many seconds.
    """

    def __init__(self, content="", *, status=200, headers=None, **how):
        self.content, self.status, self.headers = content, status, headers or {}
        self.delay, self.hang = how.pop("delay", 0), how.pop("hang", False)
        self.cut, self.drip = how.pop("cut", None), how.pop("drip", None)
        assert not how, how

    @property
    def payload(self):
        text = self.content if isinstance(self.content, str) else json.dumps(self.content)
        return text.encode()


class LlmServer:
    """Plays its answers in turn, the last one for ever; `requests` holds what was sent."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.busy = self.most_busy = 0
        self.ended = threading.Event()
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                server.answer(self)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self.http.server_port}/v1"

    def answer(self, handler):
        sent = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.requests.append({"path": handler.path, "headers": handler.headers, "json": sent})
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
        try:
            self.play(handler, answer(sent) if callable(answer) else answer)
        except OSError:  # the caller has gone
            handler.close_connection = True
        finally:
            with self.lock:
                self.busy -= 1

    def play(self, handler, answer):
        self.ended.wait(600 if answer.hang else answer.delay)
        payload = answer.payload
        handler.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(payload)))
        handler.end_headers()
        if answer.drip:
            for byte in payload:
                handler.wfile.write(bytes([byte]))
                if self.ended.wait(answer.drip):
                    break
        else:
            handler.wfile.write(payload[: answer.cut])
        handler.close_connection = answer.cut is not None or bool(answer.drip)


@contextmanager
def serving(*answers):
    """A server that plays these answers; contents may be plain texts."""
    server = LlmServer(
        *(a if callable(a) or isinstance(a, Answer) else Answer(completion(a)) for a in answers)
    )
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join(5)

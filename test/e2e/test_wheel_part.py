"""scripts/wheel-part.py: a folder of a wheel on a server, from each kind of index, with as little traffic as can be.

    test_wheel_part.py --build BUILD [--only REGEX] [-v]
"""

import json
import os
import sys
import zipfile
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from support import execute, main, require, require_refusal, require_success

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "wheel-part.py"
WHEEL = "big_pack-1.5-py3-none-any.whl"
CHUNK = 1 << 18  # as in the script
ZIP_HEADER = 30  # of each file, without its name
FIRST = "nvidia/pack/include/0.h"
FILES = {FIRST: os.urandom(CHUNK - ZIP_HEADER - len(FIRST) - 10), "nvidia/pack/include/a.h": b"a" * 1000,
         "nvidia/pack/include/sub/b.h": b"b" * 70000, "nvidia/pack/include/sub/c.h": os.urandom(2 * CHUNK)}


def wheel_of(folder):
    """A wheel of 9 MiB, of which the headers are a small part. Their folder is several times what is fetched at once, and the second
    one's zip header begins ten bytes before the end of the first piece."""
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("nvidia/pack/lib/first.so", os.urandom(4 << 20))
        for name, data in FILES.items():
            wheel.writestr(name, data, zipfile.ZIP_STORED if name == FIRST else None)
        wheel.writestr("nvidia/pack/lib/last.so", os.urandom(4 << 20))
        wheel.writestr("big_pack-1.5.dist-info/METADATA", "Metadata-Version: 2.1\nName: big-pack\nVersion: 1.5\n")
        wheel.writestr("big_pack-1.5.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("big_pack-1.5.dist-info/RECORD", "")
    return (folder / WHEEL).read_bytes()


@contextmanager
def index_of(wheel, page, gives_parts):
    """A server with an index of the wheel; `page` is its (kind, text). Yields its environment and the answers' lengths."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status, kind, data, **headers):
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": len(data), **headers}.items():
                self.send_header(name.replace("_", "-"), str(value))
            self.end_headers()
            with suppress(ConnectionError):  # whoever reads has seen enough
                self.wfile.write(data)

        def do_GET(self):
            if self.path == "/simple/big-pack/":
                return self.answer(200, page[0], page[1].encode())
            if not self.path.startswith(f"/files/{WHEEL}"):
                return self.answer(404, "text/plain", b"")
            wanted = self.headers.get("Range")
            first, last = map(int, wanted.removeprefix("bytes=").split("-")) if wanted and gives_parts else (0, len(wheel) - 1)
            data = wheel[first:last + 1]
            sent.append(len(data))
            if wanted and gives_parts:
                return self.answer(206, "application/zip", data, Content_Range=f"bytes {first}-{first + len(data) - 1}/{len(wheel)}")
            return self.answer(200, "application/zip", data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        environment = {name: value for name, value in os.environ.items() if not name.upper().startswith("PIP_") and not name.lower().endswith("_proxy")}
        yield {**environment, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"http://127.0.0.1:{server.server_port}/simple/"}, sent
    finally:
        server.shutdown()


HTML = ("text/html", f'<!DOCTYPE html><a href="../../files/big_pack-1.4-py3-none-any.whl">old</a>\n<a href="../../files/{WHEEL}#sha256=00">this</a>')
JSON = ("application/vnd.pypi.simple.v1+json", json.dumps({"meta": {"api-version": "1.1"}, "name": "big-pack", "files": [
    {"filename": "big_pack-1.5.tar.gz", "url": "/files/big_pack-1.5.tar.gz", "hashes": {}}, {"filename": WHEEL, "url": f"/files/{WHEEL}", "hashes": {}}]}))


def run(target, environment, package="Big.Pack==1.5", folder="nvidia/pack/include"):
    return execute([sys.executable, SCRIPT, package, folder, target], env=environment)


def require_files(target):
    found = {str(f.relative_to(target)): f.read_bytes() for f in target.rglob("*") if f.is_file()}
    require(found == {name.removeprefix("nvidia/pack/include/"): data for name, data in FILES.items()}, f"files: {sorted(found)}")


def test_parts(bench):
    wheel = wheel_of(bench.folder)
    for number, page in enumerate((HTML, JSON)):
        with index_of(wheel, page, gives_parts=True) as (environment, sent):
            target = bench.folder / f"parts{number}"
            require_success(run(target, environment), page[0])
            require_files(target)
            require(sum(sent) < len(wheel) / 4, f"{sum(sent)} of {len(wheel)} bytes were fetched")


def test_a_folder_above(bench):
    """Only a name in the wheel may not lead out of the folder."""
    with index_of(wheel_of(bench.folder), JSON, gives_parts=True) as (environment, _):
        require_success(run(bench.folder / ".." / bench.folder.name / "above", environment), "a target with ..")
    require_files(bench.folder / "above")


def test_whole(bench):
    """A server without parts: pip downloads the wheel."""
    wheel = wheel_of(bench.folder)
    plain = ("text/html", HTML[1].replace("#sha256=00", ""))
    with index_of(wheel, plain, gives_parts=False) as (environment, _):
        done = run(bench.folder / "whole", environment)
        require_success(done, "without parts")
        require("gives no parts of files" in done.err, done.err)
        require_files(bench.folder / "whole")


def test_wheels_in_a_folder(bench):
    wheel_of(bench.folder)
    require_success(run(bench.folder / "local", {**os.environ, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_FIND_LINKS": str(bench.folder)}), "find-links")
    require_files(bench.folder / "local")


def test_refusals(bench):
    with index_of(wheel_of(bench.folder), HTML, gives_parts=True) as (environment, _):
        require_refusal(run(bench.folder / "none", environment, folder="nvidia/other"), "no folder nvidia/other", "no such folder")
        require_refusal(run(bench.folder / "none", environment, package="big-pack==1.6"), ["no such wheel", "pip could not download big-pack==1.6"], "no such version")
        require_refusal(execute([sys.executable, SCRIPT, "big-pack", "f"], env=environment), "PACKAGE==VERSION FOLDER DIR", "a call without a version")
    require(not (bench.folder / "none").exists(), "files of a refused package")


def test_no_index(bench):
    """pip's no-index: only its folders of wheels are looked at, also where pip's configuration has it."""
    settings = bench.path("pip.conf")
    settings.write_text("[global]\nno-index = true\n")
    with index_of(wheel_of(bench.folder), JSON, gives_parts=True) as (environment, sent):
        for more in ({"PIP_NO_INDEX": "1"}, {"PIP_CONFIG_FILE": str(settings)}):
            require_refusal(run(bench.folder / "none", environment | more), ["use no index", "pip could not download"], f"{more}")
            require_success(run(bench.folder / "local", environment | more | {"PIP_FIND_LINKS": str(bench.folder)}), "find-links")
            require_files(bench.folder / "local")
        require(not sent, f"{sum(sent)} bytes were fetched")


def test_a_damaged_wheel_in_a_folder(bench):
    with index_of(wheel_of(bench.folder), JSON, gives_parts=True) as (environment, _):
        (bench.folder / WHEEL).write_bytes(b"none")
        done = run(bench.folder / "none", environment | {"PIP_FIND_LINKS": str(bench.folder)})
        require("not a zip file" in done.err and "Traceback" not in done.err, done.err)


if __name__ == "__main__":
    main(__doc__)

#!/usr/bin/env python3
"""Unpacks one folder of a package's wheel without fetching all of it.

    wheel-part.py PACKAGE==VERSION FOLDER DIR

NVIDIA's libraries come in wheels of hundreds of megabytes, of which a build needs the headers. A wheel is a zip file: its list of
contents stands at its end, and a web server gives any part of a file that it is asked for (HTTP's Range). Where one does not, or the
index is not found, pip downloads the whole wheel. The index is pip's own (PIP_INDEX_URL, pip's configuration, else PyPI), and a
folder of wheels that pip knows (find-links) is looked at first. Python's standard library alone, and pip where there is one.
"""
import ast
import base64
import contextlib
import functools
import html.parser
import io
import json
import os
import pathlib
import platform
import re
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile

SECONDS = 60  # for an answer
CHUNK = 1 << 18  # bytes asked for at least: most of a wheel's list of contents, or a folder of headers


def fail(message):
    print(f"wheel-part: {message}", file=sys.stderr)
    sys.exit(1)


@functools.cache
def pip_configuration():
    """Values by SECTION.NAME; none where there is no pip."""
    run = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    values = {}
    for line in run.stdout.splitlines():
        name, _, value = line.partition("=")
        with contextlib.suppress(ValueError, SyntaxError):  # what pip says besides
            values[name] = str(ast.literal_eval(value))
    return values


def pip_setting(name):
    """What pip's environment or configuration says for a download, or ""."""
    value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    return value or pip_configuration().get(f"download.{name}") or pip_configuration().get(f"global.{name}") or ""


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def is_wanted(file, package, version):
    """A wheel of this version that this machine could install: NVIDIA's are the same for every Python."""
    parts = file.removesuffix(".whl").split("-")
    if not file.endswith(".whl") or len(parts) < 5 or normalized(parts[0]) != package or parts[1] != version:
        return False
    return parts[-1] == "any" or parts[-1].startswith("manylinux") and parts[-1].endswith(platform.machine())


class Links(html.parser.HTMLParser):
    """The links of an index's page (PEP 503)."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "a" and (target := dict(attributes).get("href")):
            self.found.append(target)


class Web:
    """HTTP with the certificates that pip takes."""

    def __init__(self):
        certificates = pip_setting("cert") or os.environ.get("REQUESTS_CA_BUNDLE") or None
        self.context = ssl.create_default_context(cafile=certificates)

    def open(self, url, **headers):
        parts = urllib.parse.urlsplit(url)
        if parts.username:  # https://user:password@host
            secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
            url = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SECONDS, context=self.context)


def wheel_address(web, package, version):
    """Where pip's index says that the wheel is, or None."""
    index = (pip_setting("index-url") or "https://pypi.org/simple").rstrip("/")
    with web.open(f"{index}/{package}/", Accept="application/vnd.pypi.simple.v1+json, text/html;q=0.5") as answer:
        base, text, kind = answer.url, answer.read().decode(), answer.headers.get_content_type()
    if kind.endswith("json"):
        links = [file["url"] for file in json.loads(text)["files"]]
    else:
        links = Links(text).found
    for link in links:
        address = urllib.parse.urljoin(base, link)
        if is_wanted(pathlib.PurePosixPath(urllib.parse.unquote(urllib.parse.urlsplit(address).path)).name, package, version):
            return urllib.parse.urldefrag(address).url
    return None


class RemoteFile(io.RawIOBase):
    """A file on a web server, read in parts."""

    def __init__(self, web, address):
        self.web, self.address, self.place = web, address, 0
        self.start, self.held = 0, b""
        self.size = 0
        self.fetch(0, 1)

    def fetch(self, start, bytes_wanted):
        end = start + max(bytes_wanted, 1) - 1
        with self.web.open(self.address, Range=f"bytes={start}-{end}") as answer:
            found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
            if answer.status != 206 or not found or int(found[1]) != start:
                raise OSError("the server gives no parts of files")
            self.start, self.held, self.size = start, answer.read(), int(found[2])

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.place

    def seek(self, offset, whence=io.SEEK_SET):
        self.place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.size}[whence]
        return self.place

    def readinto(self, buffer):
        wanted = min(len(buffer), self.size - self.place)
        if wanted <= 0:
            return 0
        if not self.start <= self.place < self.start + len(self.held):
            # What is read next mostly follows; at the end of the file, what is read next mostly precedes.
            last = self.size - self.place <= CHUNK
            start = max(0, self.size - CHUNK) if last else self.place
            self.fetch(start, min(self.size - start, max(wanted, CHUNK)))
        piece = self.held[self.place - self.start:][:wanted]
        buffer[:len(piece)] = piece
        self.place += len(piece)
        return len(piece)


def unpack(file, folder, target):
    """The files of the folder, in `target`; zipfile compares each with its checksum."""
    with zipfile.ZipFile(file) as wheel:
        names = [name for name in wheel.namelist() if name.startswith(folder + "/") and not name.endswith("/")]
        if not names:
            fail(f"the wheel has no folder {folder}")
        for name in sorted(names, key=lambda name: wheel.getinfo(name).header_offset):
            inside = pathlib.PurePosixPath(name).relative_to(folder)
            if ".." in inside.parts:
                fail(f"the wheel names a file outside of its folder: {name}")
            path = target / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wheel.read(name))


def unpack_part(package, version, folder, target):
    """From pip's folders of wheels, or from its index; or else a reason why not."""
    for place in pip_setting("find-links").split():
        for file in sorted(pathlib.Path(place).glob("*.whl")) if os.path.isdir(place) else []:
            if is_wanted(file.name, package, version):
                return unpack(file, folder, target)
    if pip_setting("no-index").lower() in ("1", "true", "yes", "on"):
        return "pip's folders have no such wheel, and it is to use no index"
    web = Web()
    address = wheel_address(web, package, version)
    if not address:
        return "the index has no such wheel"
    # Buffered, since a part may end within a header, and zipfile takes a short answer for the end of the file.
    return unpack(io.BufferedReader(RemoteFile(web, address), CHUNK), folder, target)


def main():
    if len(sys.argv) != 4 or "==" not in sys.argv[1]:
        fail(__doc__.split("\n")[2].strip())
    package, version = sys.argv[1].split("==")
    package, folder, target = normalized(package), sys.argv[2].strip("/"), pathlib.Path(sys.argv[3])
    try:
        problem = unpack_part(package, version, folder, target)
        if not problem:
            return
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:  # OSError: whatever urllib says, too
        problem = str(error)
    print(f"wheel-part: {package} {version}: {problem}; the whole wheel is left to pip", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as whole:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", whole]
        if subprocess.run([*pip, f"{package}=={version}"]).returncode != 0:
            fail(f"pip could not download {package}=={version}")
        unpack(next(pathlib.Path(whole).glob("*.whl")), folder, target)


main()

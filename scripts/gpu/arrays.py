"""Arrays on disk in plain Python: .npy, .npz and the trainers' checkpoints. The machine with the GPU may have no NumPy.

An array is an Array: shape, and the values in C order as an array.array.
"""

import ast
import ctypes
import ctypes.util
import hashlib
import json
import math
import struct
import zipfile
from array import array
from collections import namedtuple
from operator import mul, sub

Array = namedtuple("Array", "shape values")

CODES = {"<f4": "f", "<f8": "d", "<i8": "q", "<i4": "i", "|b1": "b", "|u1": "B"}
DESCRIPTIONS = {code: description for description, code in CODES.items() if description != "|b1"}


class Malformed(Exception):
    """A file that is not what it should be; the message names it."""


# ---------------------------------------------------------------- NumPy's files


def read_npy(data, name):
    """An Array from the bytes of an .npy file."""
    if data[:6] != b"\x93NUMPY":
        raise Malformed(f"{name} is no .npy file")
    wide = data[6] > 1
    size = struct.unpack_from("<I" if wide else "<H", data, 8)[0]
    start = (12 if wide else 10) + size
    header = ast.literal_eval(data[start - size:start].decode("latin-1"))
    if header["fortran_order"] or header["descr"] not in CODES:
        raise Malformed(f"{name} has elements of {header['descr']} in an order or of a type that is not expected here")
    values = array(CODES[header["descr"]])
    values.frombytes(data[start:])
    if len(values) != math.prod(header["shape"]):
        raise Malformed(f"{name} is cut off: {len(values)} elements, shape {header['shape']}")
    return Array(header["shape"], values)


def npy_bytes(shape, values):
    """The .npy file of an array; `values` may be several array.arrays that follow each other."""
    parts = [values] if isinstance(values, array) else values
    shape = "(" + "".join(f"{n}, " for n in shape) + ")"
    header = f"{{'descr': '{DESCRIPTIONS[parts[0].typecode]}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"".join([b"\x93NUMPY\x01\x00", struct.pack("<H", len(header)), header.encode(), *(p.tobytes() for p in parts)])


def load_npy(path):
    return read_npy(path.read_bytes(), path.name)


def save_npy(path, shape, values):
    path.write_bytes(npy_bytes(shape, values))


def load_npz(path):
    """name → Array."""
    with zipfile.ZipFile(path) as file:
        return {name[:-4]: read_npy(file.read(name), f"{path.name}:{name}") for name in file.namelist()}


def save_npz(path, arrays):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, (shape, values) in arrays.items():
            file.writestr(f"{name}.npy", npy_bytes(shape, values))


# ---------------------------------------------------------------- arithmetic


def norm(values):
    return math.sqrt(sum(map(mul, values, values)))


def distance(a, b):
    difference = array("d", map(sub, a, b))
    return norm(difference)


def thinned(values, most=2048):
    """Every k-th element, so that about `most` remain of long ones: what is kept of the references."""
    return values if len(values) <= 2 * most else values[::len(values) // most]


# ---------------------------------------------------------------- values from a seed


def seeded_floats(name, count, deviation):
    """`count` floats with this standard deviation, of 256 evenly spaced values: the same on every machine."""
    step = deviation * math.sqrt(12 / (256 * 256 - 1))
    table = [(i - 127.5) * step for i in range(256)]
    return array("f", map(table.__getitem__, hashlib.shake_128(name.encode()).digest(count)))


# ---------------------------------------------------------------- checkpoints

HASH_FIELD = b'"hash":"'


def read_checkpoint(data):
    """(header, bytes by key) of a trainer's checkpoint."""
    size = struct.unpack_from("<Q", data)[0]
    header, start = json.loads(data[8:8 + size]), 8 + size
    return header, {key: data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]]
                    for key, entry in header.items() if key != "__metadata__"}


def checkpoint_bytes(header, tensors):
    """The checkpoint with these tensors (key → bytes) of the one that `header` is of."""
    kept, offset = {"__metadata__": {**header["__metadata__"], "hash": "0" * 32}}, 0
    for key, data in tensors.items():
        kept[key] = {**header[key], "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(kept, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file = struct.pack("<Q", len(text)) + text + b"".join(tensors.values())
    at = file.index(HASH_FIELD) + len(HASH_FIELD)
    return file[:at] + xxh3_128(file) + file[at + 32:]


def xxh3_128(data):
    """As the trainers write it. The library is one of mpc's own Debian packages; only gpu-prepare.sh needs it."""
    class Hash(ctypes.Structure):
        _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]

    try:
        function = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0").XXH3_128bits
    except (OSError, AttributeError):
        raise Malformed("libxxhash.so.0 with XXH3 is missing: install Debian's package libxxhash0") from None
    function.restype, function.argtypes = Hash, [ctypes.c_char_p, ctypes.c_size_t]
    result = function(data, len(data))
    return b"%016x%016x" % (result.high, result.low)


# A checkpoint without the values that a seed gives: the file up to its first seeded tensor and what lies between
# and behind them, one after the other, and where in the whole file which of them belong.


def without_seeded(file, seeded):
    """(the remaining bytes, [[offset, name, count, deviation]…]) of a checkpoint; `seeded` is key → [name, count, deviation]."""
    size = struct.unpack_from("<Q", file)[0]
    header, start = json.loads(file[8:8 + size]), 8 + size
    rest, end, pieces = [], 0, []
    for offset, key in sorted((header[key]["data_offsets"][0] + start, key) for key in seeded):
        rest.append(file[end:offset])
        pieces.append([offset, *seeded[key]])
        end = offset + 4 * seeded[key][1]
    return b"".join([*rest, file[end:]]), pieces


def with_seeded(rest, pieces):
    """The file again, in pieces of bytes."""
    taken = end = 0
    for offset, name, count, deviation in pieces:
        yield rest[taken:taken + offset - end]
        taken += offset - end
        yield seeded_floats(name, count, deviation).tobytes()
        end = offset + 4 * count
    yield rest[taken:]

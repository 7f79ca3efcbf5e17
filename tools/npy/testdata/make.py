"""Makes arrays.npz and the other fixtures of this folder. Needs numpy and scipy."""
import io
import zipfile

import numpy as np
import scipy.sparse as sp

values = np.array([[0, 1, 2], [3, 100, 127]])
members = {}


def add(name, array, version=None):
    f = io.BytesIO()
    np.lib.format.write_array(f, array, version=version, allow_pickle=True)
    members[name + ".npy"] = f.getvalue()


for kind in "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8".split():
    for order in "<>":
        a = values.astype(order + kind)
        add(f"c_{order}{kind}".replace("<", "little_").replace(">", "big_"), a)
        add(f"fortran_{order}{kind}".replace("<", "little_").replace(">", "big_"), np.asfortranarray(a))
for version in [(1, 0), (2, 0), (3, 0)]:
    add(f"version_{version[0]}", values.astype("<i4"), version)
add("bool", values > 1)
add("empty", np.zeros((0, 3), "<f4"))
add("scalar", np.array(7, "<i8"))
add("bytes", np.array([b"a", b"bcd", b""]))
add("text", np.array(["a", "bcd", "", "\u00e4\u20ac\U0001f600"]))
add("big_text", np.array(["a", "\u20ac"], ">U3"))
add("huge_ids", np.array([2**63, 2**64 - 1], "<u8"))
add("refused_objects", np.array([None, {}], object))
add("refused_structured", np.zeros(2, [("a", "<i4"), ("b", "<f4")]))
add("refused_complex", np.zeros(2, "<c8"))
add("refused_dates", np.zeros(2, "<M8[s]"))

with zipfile.ZipFile("arrays.npz", "w", zipfile.ZIP_DEFLATED) as z:
    for name, data in sorted(members.items()):
        z.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
dense = np.arange(12, dtype="<f4").reshape(3, 4)
np.savez("stored.npz", dense=dense)
np.savez_compressed("deflated.npz", dense=dense)

"""Makes the sparse matrices of this folder. Needs numpy and scipy."""
import numpy as np
import scipy.sparse as sp

dense = np.array([[0, 1.5, 0, -2], [0, 0, 0, 0], [3, 0, 0, 4], [0, 0, 0.25, 0], [7, 8, 9, 10]], "<f4")
csr = sp.csr_matrix(dense)
sp.save_npz("deflated.npz", csr)
sp.save_npz("stored.npz", csr, compressed=False)
sp.save_npz("wide.npz", sp.csr_array((csr.data.astype(">f8"), csr.indices.astype("<i8"), csr.indptr.astype("<i8")), shape=csr.shape))
sp.save_npz("csc.npz", csr.tocsc())
# Column 1 of row 0 is there twice; the parts make what dense has.
twice = sp.csr_matrix((np.array([1, 0.5, -2, 3, 4, 0.25, 7, 8, 9, 10], "<f4"), np.array([1, 1, 3, 0, 3, 2, 0, 1, 2, 3], "<i4"), np.array([0, 3, 3, 5, 6, 10], "<i4")), shape=(5, 4))
sp.save_npz("twice.npz", twice)
for name, array, at, value in [("column", "indices", 2, 4), ("ptr", "indptr", 2, 1), ("last", "indptr", -1, 8), ("first", "indptr", 0, 1)]:
    parts = {"indices": csr.indices.copy(), "indptr": csr.indptr.copy(), "data": csr.data, "shape": csr.shape, "format": b"csr"}
    parts[array][at] = value
    np.savez(f"broken_{name}.npz", **parts)
np.savez("broken_shape.npz", indices=csr.indices, indptr=csr.indptr, data=csr.data, shape=(6, 4), format=b"csr")

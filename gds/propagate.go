package gds

// PropagationOps multiply sparse matrices by features, as propagation does.
type PropagationOps interface {
	// Propagate computes dst [k,F] from src [n,F] along the terms of p:
	//
	//	total  = sum over the terms e of row i of c(e) * src[Nodes[0,e],:]
	//	dst[i] = RowFactors[0,i] * total, or with a Blend
	//	dst[i] = Factor * (RowFactors[0,i] * total) + Theta * Blend[i]
	//
	// in float32, where c(e) = Weights[0,e] * NodeFactors[0,Nodes[0,e]]. dst, src and Blend are dense and
	// of float types, which may differ; dst is rounded to the nearest, ties to even. Starts and Ends
	// beyond the terms, or Ends before Starts, and nodes of no row of src are errors.
	//
	// Sums run in the order of docs/format.md, unless p.AnyOrder is set: terms are multiplied, then
	// added, in groups of 1024 that begin at 0, and the sums of the groups are added in order. So
	// numbers are the same, to the bit, on all devices.
	Propagate(dst, src Tensor, p Product)
}

// Product is the sparse matrix of Propagate, and what becomes of its sums.
type Product struct {
	Starts, Ends Tensor  // int64 [1,k]: row i has the terms Starts[i] to Ends[i]-1
	Nodes        Tensor  // uint32 [1,E]: the row of src that a term is of
	Weights      Tensor  // float32 [1,E]; the zero Tensor: all 1
	NodeFactors  Tensor  // float32 [1,n]; the zero Tensor: all 1
	RowFactors   Tensor  // float32 [1,k]; the zero Tensor: all 1
	Blend        Tensor  // [k,F]; the zero Tensor: none
	Factor       float32 // of the blended matrix
	Theta        float32
	// NotFinite, int64 [1,1], grows by the number of elements of dst that are stored as infinities or NaN; the
	// zero Tensor: they are not counted.
	NotFinite Tensor
	// AnyOrder lets a device add the terms in any order, and fuse products with sums, where that is faster.
	AnyOrder bool
}

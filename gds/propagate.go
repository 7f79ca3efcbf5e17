package gds

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
}

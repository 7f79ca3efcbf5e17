package gds

// Ops is the work that can be enqueued on a Stream. No call returns an error, or waits for what it enqueues: see
// Stream. Matrices are float32 unless said otherwise, and may be strided views. An output must not overlap an input,
// except where it is the very same view in an elementwise operation. Results do not depend on the number of threads.
// Enqueueing an operation allocates no memory.
//
// Package gds/internal/ops checks shapes and element types for all devices, which have a file for each kind of work, as
// has the suite.
type Ops interface {
	// Matrices are moved, and their elements converted.

	// Copy copies src to dst, of the same shape and type, any type. Each of them is memory of this device, memory of
	// another device of its kind, or pinned memory of any: other operations take memory of the stream's device alone,
	// unless they say otherwise. Streams of the other device see the result as all others do, after an event.
	Copy(dst, src Tensor)
	// Convert copies src to dst, of the same shape, between float32, float16 and bfloat16, rounding to nearest even.
	Convert(dst, src Tensor)
	// Gather copies rows: dst[i,:] = src[index[i],:], dst and src of one type,
	// any type; index is uint32 or int64 [1, dst.Rows] and must be in range. src may be pinned memory
	// on a device whose Info has MapsPinned: it reads the rows by itself.
	Gather(dst, src, index Tensor)
	// Scatter copies rows: dst[index[i],:] = src[i,:], dst and src of one type, any type; index is
	// uint32 [1, src.Rows], in range and without repetition.
	Scatter(dst, src, index Tensor)
	// Fill sets every element of dst, of any type if value is 0.
	Fill(dst Tensor, value float32)

	// Products and sums of linear layers.

	// Gemm computes c = alpha * op(a) op(b) + beta * c, where op transposes if
	// asked to. With beta = 0, c need not be initialised.
	Gemm(transA, transB bool, alpha float32, a, b Tensor, beta float32, c Tensor)
	// Transpose computes dst = beta * dst + alpha * src^T, for dst [n,m] and src [m,n]. With beta = 0,
	// dst need not be initialised.
	Transpose(alpha float32, src Tensor, beta float32, dst Tensor)
	// AddRow adds the vector row [1,Cols] to every row of dst.
	AddRow(dst, row Tensor)
	// MulRow multiplies every row of dst, element by element, by the vector row [1,Cols].
	MulRow(dst, row Tensor)
	// SumRows computes dst[0,j] = beta * dst[0,j] + sum over i of src[i,j]. With beta = 0, dst need not be initialised.
	SumRows(dst Tensor, beta float32, src Tensor)

	// Each element is computed from the elements at its place in matrices of one shape.

	// Axpy computes y += alpha * x.
	Axpy(alpha float32, x, y Tensor)
	// ReLU computes dst = max(src, 0) (NaN stays NaN), and ReLUGrad dst = scale * grad
	// where out > 0, else 0, for out = ReLU's result.
	ReLU(dst, src Tensor)
	ReLUGrad(dst, grad, out Tensor, scale float32)
	// PReLU is ReLU with a slope below zero (He et al. 2015): dst = src where src > 0, else slope[0,0] * src. PReLUGrad
	// is its backward pass: dst = grad where src > 0, else slope[0,0] * grad, and the sum of grad * src over the other
	// elements is added to gradSlope [1,1].
	PReLU(dst, src, slope Tensor)
	PReLUGrad(dst, gradSlope, grad, src, slope Tensor)
	// ELU computes dst = src where src > 0, else exp(src) - 1 (Clevert et al. 2016). ELUGrad is its backward pass, for
	// out = ELU's result / keep, as dropout makes it: dst = grad where out > 0, else grad * (1 + keep * out).
	ELU(dst, src Tensor)
	ELUGrad(dst, grad, out Tensor, keep float32)
	// Mul computes dst = a * b.
	Mul(dst, a, b Tensor)
	// Dropout zeroes each element of src with probability p and scales the others by 1/(1-p). Element (i,j) is dropped
	// if Float32(Hash(seed, i*Cols+j)) < p (internal/rng), so the same call on a gradient is the backward pass. p must
	// be in [0,1).
	Dropout(dst, src Tensor, p float32, seed uint64)
	// ReLUDropout is ReLU and then Dropout. Its backward pass is ReLUGrad with scale
	// 1/(1-p): out is zero where an element was dropped.
	ReLUDropout(dst, src Tensor, p float32, seed uint64)

	// Columns are normalised, as batch normalisation does (Ioffe and Szegedy 2015), and rows, as layer normalisation
	// does (Ba et al. 2016). Vectors are [1,Cols] of src; normal(x) is (x - mean) / sqrt(variance + epsilon).

	// SumSquares computes dst[0,j] = sum over i of (src[i,j] - mean[0,j])^2.
	SumSquares(dst, src, mean Tensor)
	// NormalizeColumns computes dst = gain * normal(src) + shift with a mean and a variance for each column.
	NormalizeColumns(dst, src, mean, variance, gain, shift Tensor, epsilon float32)
	// NormalizeColumnsSums computes sums [1,2*Cols]: the sums over rows of grad, and of grad * normal(src).
	NormalizeColumnsSums(sums, grad, src, mean, variance Tensor, epsilon float32)
	// NormalizeColumnsGrad is the backward pass of NormalizeColumns. mean, variance and sums cover all 1/part rows of a
	// batch; src and grad may hold a part of them: dst = gain / sqrt(variance + epsilon) * (grad - part * sums[0,j] -
	// normal(src) * part * sums[0,Cols+j]). With part 0 mean and variance are constants.
	NormalizeColumnsGrad(dst, grad, src, mean, variance, gain, sums Tensor, part, epsilon float32)
	// NormalizeRows computes dst = gain * normal(src) + shift with the mean and the variance of
	// each row, and sets stats [Rows,2] to the mean and to 1 / sqrt(variance + epsilon).
	NormalizeRows(dst, stats, src, gain, shift Tensor, epsilon float32)
	// NormalizeRowsGrad is its backward pass. With h = gain * grad and means over the row,
	// dst = (h - mean(h) - normal(src) * mean(h * normal(src))) / sqrt(variance + epsilon).
	// It adds the sums over rows of grad * normal(src) to gradGain, and of grad to gradShift.
	NormalizeRowsGrad(dst, gradGain, gradShift, grad, src, stats, gain Tensor)

	// Tokens of each row: a matrix [n, T*w] has T tokens of w elements, one after another.

	// Attention is scaled dot-product attention (Vaswani et al. 2017) among the T tokens of a row. The tokens of qkv
	// [n, T*3w] are query, key and value, w elements each; each of H heads takes w/H of them. Head h of token t gets
	// weights[i,h,t,:] = softmax over u of query[t,h] . key[u,h] / sqrt(w/H) and dst[i,t,h] = sum over u of
	// weights[i,h,t,u] * value[u,h]. dst is [n, T*w], weights [n, H*T*T].
	Attention(dst, weights, qkv Tensor, tokens, heads int)
	// AttentionGrad is its backward pass: dst [n, T*3w] is the gradient with respect to qkv.
	AttentionGrad(dst, grad, weights, qkv Tensor, tokens, heads int)
	// SoftmaxRows computes dst[i,:] = softmax(src[i,:]), and SoftmaxRowsGrad, from its result,
	// dst[i,:] = out[i,:] * (grad[i,:] - grad[i,:] . out[i,:]).
	SoftmaxRows(dst, src Tensor)
	SoftmaxRowsGrad(dst, grad, out Tensor)
	// WeighTokens computes dst[i,:] = sum over t of weights[i,t] * tokens[i,t,:], where weights are [n,T], tokens [n,
	// T*w] and dst [n,w]. WeighTokensGrad is its backward pass: it sets gradWeights[i,t] = grad[i,:] . tokens[i,t,:],
	// and adds weights[i,t] * grad[i,:] to gradTokens[i,t,:].
	WeighTokens(dst, weights, tokens Tensor)
	WeighTokensGrad(gradWeights, gradTokens, grad, weights, tokens Tensor)

	// Along the edges of a block: a bipartite graph from S sources to D destinations. Destination v has the edges
	// offsets[0,v] to offsets[0,v+1]-1; offsets are uint32 [1,D+1], ascend, and need not begin at 0. Edge e comes from
	// source indices[0,e]; indices are uint32 [1,E]. Offsets beyond E, or that descend, and indices of no source are
	// errors.

	// SumEdges computes dst[v,:] = sum over the edges e of v of weights[0,e] * src[indices[0,e],:],
	// for dst [D,w], src [S,w] and weights [1,E].
	SumEdges(dst, src, offsets, indices, weights Tensor)
	// SumEdgesGrad is its backward pass: dst[u,:] = sum over the edges e from u, ascending, of
	// weights[0,e] * grad[v,:], where v is the destination of e; dst is [S,w] and grad [D,w].
	SumEdgesGrad(dst, grad, offsets, indices, weights Tensor)
	// AttendEdges is the attention of GAT (Velickovic et al. 2018, Equations 3 and 4) with H heads that take w/H
	// columns each of values [S,w]. scores are [S,2H]: column 2h is the score of head h for a node as a source, 2h+1 as
	// a destination, and destination v is source v. For each edge e from u to v, with leaky(x) = x if x > 0, else slope
	// * x, alpha[e,h] = softmax over the edges of v of leaky(scores[u,2h] + scores[v,2h+1]), and dst[v,h] = sum over
	// the edges of v of alpha[e,h] * values[u,h]. dst is [D,w]. stats are [D,2H]: the largest exponent of v and head h,
	// and the sum of the exponentials after it was subtracted; 0 and 1 where v has no edges.
	AttendEdges(dst, stats, values, scores, offsets, indices Tensor, slope float32)
	// AttendEdgesGrad is its backward pass: it sets the gradients of values [S,w] and of scores
	// [S,2H] from grad [D,w], the gradient of AttendEdges' result.
	AttendEdgesGrad(gradValues, gradScores, grad, stats, values, scores, offsets, indices Tensor, slope float32)

	// Products of sparse matrices and features, as propagation makes them.

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
	// Sums run in the order of docs/format.md: terms are multiplied, then added, in groups of 1024 that
	// begin at 0, and the sums of the groups are added in order. So numbers are the same, to the bit, on
	// all devices.
	Propagate(dst, src Tensor, p Product)

	// Checksums of memory, so that what is read into a device is checked there.

	// Checksum sets dst, uint32 [1,1], to the CRC-32C of the bytes of src, which is dense and of any type. Go's
	// hash/crc32 gives the same with the polynomial of Castagnoli.
	Checksum(dst, src Tensor)

	// A mini-batch of a graph is prepared on the device itself: it chooses the in-edges of nodes, numbers the nodes
	// that these come from, and gathers rows of features through a cache. The graph and the features are in device
	// memory or, on a device whose Info has MapsPinned, in pinned host memory, which the device then reads by itself,
	// by unified virtual addressing: that is Route 1 of MorphGL (section 4.1), beside the one on which the host
	// prepares batches and copies them. loader/sampling makes whole mini-batches of them, the same as its samplers on
	// the processor. A block is sampled by CountSampled, after which the host reads how many edges there are, then
	// SampleEdges and Relabel.

	// CountSampled counts the edges that SampleEdges chooses for nodes uint32 [1,D]: nodes[v] gets the edges offsets[v]
	// to offsets[v+1]-1. offsets are uint32 [1,D+1], and total, int64 [1,1], is the number of all edges; above 2^32-1
	// offsets have no meaning. A node that the graph has not is an error. To read, int64 [1,1], is added how many bytes
	// of Offsets, Sources and Weights CountSampled and SampleEdges read for nodes whose edges are not Cached: each 16 of
	// Offsets; both with Labor 4 for each edge of a list that is chosen among; and SampleEdges 4, or 8 with Weights, for
	// each chosen edge.
	CountSampled(offsets, total, read, nodes Tensor, g *Graph, s Sampling)
	// SampleEdges writes the edges of nodes, after CountSampled with the same arguments: the nodes
	// that they come from, sources uint32 [1,E], and their weights, float32 [1,E]. The weight of the
	// edge from u to v is the inverse of how often it is expected to be chosen, times A[v,u]: see
	// Graph. Products are rounded to float32 one by one, in the order of that formula.
	SampleEdges(sources, weights, offsets, nodes Tensor, g *Graph, s Sampling)
	// Relabel gives local ids to items, uint32 [1,E]: ids[e], of uint32 [1,E], is where items[e] is in nodes. The first
	// known of nodes, uint32 [1,N], N >= known + E, are there already, and distinct; the others of items are put behind
	// them in the order in which they come first. count, uint32 [1,1], is how many nodes there are then.
	Relabel(ids, nodes, count, items Tensor, known int)
	// GatherCached copies rows of nodes, from a cache on the device where it has them: dst[i,:] =
	// cached[slots[index[i]],:] where that slot is below cached.Rows, else src[index[i],:]; all are of one type, any
	// type. index is uint32 [1,dst.Rows] and slots uint32 [1,src.Rows]. The number of rows that came from the cache is
	// added to hits, int64 [1,1]. src may be pinned memory, as in Gather.
	GatherCached(dst, cached, src, slots, index, hits Tensor)

	// What a model is trained for and judged by. All losses are added up over rows, each times its weight in rows
	// [1,n], or as it is if rows is the zero Tensor: the sum is added to loss [1,1], and, if grad is not the zero
	// Tensor, grad is set to scale times the gradient of the sum.

	// SoftmaxCrossEntropy takes logits [n,C] and labels int32 [1,n]. The loss of a row is -weights[label] * log
	// softmax(logits)[label], where weights are [1,C], or the zero Tensor for ones. Rows with a negative label add
	// nothing and get no gradient. A label >= C is an error.
	SoftmaxCrossEntropy(loss, grad, logits, labels, weights, rows Tensor, scale float32)
	// SigmoidCrossEntropy takes logits and labels int8 [n,L] of 0 and 1. The loss of a row is the mean over its L
	// elements of -log(p) where the label is 1 and -log(1-p) where it is 0, with p = 1 / (1 + exp(-logit)). Elements
	// with a negative label count as zero and get no gradient. A label above 1 is an error.
	SigmoidCrossEntropy(loss, grad, logits, labels, rows Tensor, scale float32)
	// SquaredError takes predictions out and labels, [n,V], and units [1,V]. With the error e = (out - label) / unit,
	// the loss of a row is the mean over its V elements of e^2, and of AbsoluteError of |e|, whose gradient is zero at
	// e = 0. Elements whose label is NaN count as zero and get no gradient.
	SquaredError(loss, grad, out, labels, units, rows Tensor, scale float32)
	AbsoluteError(loss, grad, out, labels, units, rows Tensor, scale float32)
	// CountCorrect adds to count, int64 [1,2], the number of rows whose first largest logit is at their label, and the
	// number of rows that have one. Negative labels count in neither; a row with a NaN is not correct.
	CountCorrect(count, logits, labels Tensor)

	// Steps of training.

	// Adam makes one step on vectors [1,n] (Kingma and Ba 2015, Algorithm 1).
	Adam(param, grad, m, v Tensor, o AdamOptions)
	// ClipNorm multiplies the vector x [1,n] by most / |x| where its Euclidean norm |x| is above
	// most. Where the norm is no number, x stays as it is, or becomes NaN.
	ClipNorm(x Tensor, most float32)
}

// AdamOptions are the settings of one Adam step. WeightDecay is an L2 penalty:
// WeightDecay * param is added to the gradient first.
type AdamOptions struct {
	LearningRate, Beta1, Beta2, Epsilon, WeightDecay float32
	Step                                             int // 1 for the first
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
}

// Graph is a graph of n nodes and m edges, by destination, as operations that sample read it, and the matrix A by
// whose products with features a model sums messages: A[v,u] = s(v) w(u,v) t(u). "zero: x" means that the
// tensor may be the zero Tensor, which stands for x. Its memory is the caller's, and the values are valid:
// offsets ascend from 0 to m, sources are below n.
type Graph struct {
	Offsets Tensor // int64 [1,n+1]: the edges of node v are Offsets[v] to Offsets[v+1]-1
	Sources Tensor // uint32 [1,m]
	Weights Tensor // w, float32 [1,m]; zero: ones

	// Slots, uint32 [1,n], says which lists of edges are in a cache. With i = Slots[v] below K, the edges of v are edges
	// CachedOffsets[i] to CachedOffsets[i+1]-1 of the cache; else they are the graph's own. The cache has copies in the
	// graph's order, so results do not depend on Slots. zero: no list is cached.
	Slots         Tensor
	CachedOffsets Tensor // int64 [1,K+1]
	CachedSources Tensor // uint32 [1,c]
	CachedWeights Tensor // float32 [1,c]; zero: ones

	RowFactors    Tensor // s, float32 [1,n]; zero: ones
	Mean          bool   // s(v) is 1 / the in-degree of v, instead; 0 without in-edges
	ColumnFactors Tensor // t, float32 [1,n]; zero: ones

	// AddLoops: an edge of each node to itself is always chosen, and comes first. Where the
	// graph has none, it has w = 1. Loops, uint32 [1,n], is 1 + the place of v's self-loop in its list
	// of edges, or 0 where it has none; zero: no node has one.
	AddLoops bool
	Loops    Tensor
}

// Nodes is the number of nodes n.
func (g *Graph) Nodes() int { return max(g.Offsets.Cols, 1) - 1 }

// Sampling says which edges of a node are chosen. Random numbers are rng.At(Random, i) of
// internal/rng, so that the choice is a function of the arguments. There are d edges to choose among: all
// but a self-loop that is always chosen. With k = Fanout:
//
//   - k < 0, or k >= d unless Replace: all, in order.
//   - by default, k different ones, each subset with the same probability (Floyd; Bentley 1987): for
//     j = d-k, ..., d-1 the next random number r gives the edge floor(r (j+1) / 2^64), or j where that
//     has been chosen. Numbers go on from node to node of one call.
//   - Replace: k times the edge floor(r d / 2^64), each by the next random number.
//   - Labor: the edges from each source u with rng.At(Random, u) < floor(2^64 k / d), in order
//     (LABOR-0; Balin and Catalyurek 2023).
type Sampling struct {
	Fanout         int
	Random         uint64
	Replace, Labor bool
}

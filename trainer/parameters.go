package trainer

import (
	"math"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// parameter is one named matrix [rows, cols] of a model.
type parameter struct {
	name        string
	rows, cols  int
	first       int     // its first element in the flat vectors
	centre      float32 // initial values are uniform
	bound       float32 // in [centre-bound, centre+bound)
	decays      bool    // by weight decay
	fixed       bool    // is not learnt: only the layer itself changes it, the same on all ranks
	value, grad gds.Tensor
	moments     []gds.Tensor // of the optimizer, [1, rows*cols] each
}

// parameters are the parameters of one model. Values, gradients, the moments of the optimizer and the best values are
// one flat vector [1, count] each: the parameters follow each other, row-major, in the order of declaration. Backward
// passes add to gradients, so layers may share parameters.
type parameters struct {
	list  []*parameter
	count int

	value, grad gds.Tensor
	moments     []gds.Tensor
	best        gds.Tensor // values of the epoch selected so far
}

// declare adds a parameter. Its memory is there after allocate.
func (p *parameters) declare(name string, rows, cols int, bound float64) *parameter {
	q := &parameter{name: name, rows: rows, cols: cols, first: p.count, bound: float32(bound)}
	p.list = append(p.list, q)
	p.count += rows * cols
	return q
}

// allocate gets the vectors; for training, all of them.
func (p *parameters) allocate(mem *gds.Memory, t task) {
	vectors := []*gds.Tensor{&p.value}
	if t.train {
		p.moments = make([]gds.Tensor, t.optimizer.moments)
		vectors = append(vectors, &p.grad, &p.best)
		for i := range p.moments {
			vectors = append(vectors, &p.moments[i])
		}
	}
	for _, vector := range vectors {
		*vector = mem.Matrix("parameters", 1, p.count, gds.Float32)
	}
	for _, q := range p.list {
		q.value = q.matrix(p.value)
		if t.train {
			q.grad = q.matrix(p.grad)
		}
		for _, m := range p.moments {
			q.moments = append(q.moments, q.vector(m))
		}
	}
}

// matrix is the parameter's part of a vector, as it was declared, and vector the same as [1,n].
func (q *parameter) matrix(vector gds.Tensor) gds.Tensor {
	t := gds.NewTensor(vector.Buf, q.rows, q.cols, gds.Float32)
	t.Offset = int64(q.first) * int64(gds.Float32.Size())
	return t
}

func (q *parameter) vector(vector gds.Tensor) gds.Tensor {
	return vector.Columns(q.first, q.first+q.rows*q.cols)
}

// initial returns the initial values of a run: element i of a parameter is
// centre + bound * (2u - 1) with u = Float32(Hash(Derive(Derive(seed, "init"), name), i)),
// so that a parameter's values do not depend on what else a model has.
func (p *parameters) initial(seed uint64) []float32 {
	values := make([]float32, p.count)
	seed = rng.Derive(seed, "init")
	for _, q := range p.list {
		stream := rng.Derive(seed, q.name)
		for i := range q.rows * q.cols {
			u := rng.Float32(rng.Hash(stream, uint64(i)))
			values[q.first+i] = q.centre + float32(q.bound*(2*u-1)) // 2*u is exact, so fusing changes nothing
		}
	}
	return values
}

// upload sets a vector [1,n], and waits until it is there.
func (n *network) upload(vector gds.Tensor, values []float32) error {
	return gds.Upload(n.mem.Device, n.stream, vector, values)
}

// download copies a vector [1,n] to the host.
func (n *network) download(vector gds.Tensor) ([]float32, error) {
	values := make([]float32, vector.Cols)
	return values, gds.Download(n.mem.Device, n.stream, values, vector)
}

// linearBound is the bound of weights and biases of a layer with this number of
// inputs: He uniform with a = sqrt(5), PyTorch's for nn.Linear.
func linearBound(inputs int) float64 { return 1 / math.Sqrt(float64(inputs)) }

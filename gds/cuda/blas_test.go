//go:build cuda && cgo && linux

package cuda_test

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/cuda"
	"github.com/hopfeed/hopfeed/gds/testdevice"
)

// product is a times b [2,3] x [3,2], computed by a device with the options as the corner of larger matrices: cuBLAS
// multiplies small ones without tensor cores.
func product(t *testing.T, o cuda.Options, a, b []float32) (c []float32, err error) {
	t.Helper()
	d, err := cuda.Open(0, o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var x [3]gds.Tensor
	const side = 256
	for i, values := range [][]float32{a, b, nil} {
		buffer, err := d.Alloc(gds.Bytes(side, side, gds.Float32))
		if err != nil {
			t.Fatal(err)
		}
		defer buffer.Free()
		x[i] = gds.NewTensor(buffer, side, side, gds.Float32)
		cols := 3 - i
		for row := 0; row*cols < len(values); row++ {
			corner := x[i].Slice(row, row+1).Columns(0, cols)
			if err := gds.Upload(d, s, corner, values[row*cols:(row+1)*cols]); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Gemm(false, false, 1, x[0], x[1], 0, x[2])
	c = make([]float32, 4)
	for row := range 2 {
		err = errors.Join(err, gds.Download(d, s, c[2*row:2*row+2], x[2].Slice(row, row+1).Columns(0, 2)))
	}
	return c, err
}

// With TF32, factors lose what is below 2^-10 of them; without, nothing is lost.
func TestFactorsAreRoundedOnlyWhereAskedFor(t *testing.T) {
	const small = 1.0 / (1 << 13)
	a := []float32{1 + small, 2, 3, 4, 5, 6 * (1 + small)}
	b := []float32{1, 2, 3, 4, 5, 6}
	exact := []float32{22 + small, 28 + 2*small, 49 + 30*small, 64 + 36*small}
	rounded := []float32{22, 28, 49, 64}
	for _, c := range []struct {
		options cuda.Options
		want    []float32
	}{{cuda.Options{}, exact}, {cuda.Options{TF32: true}, rounded}} {
		d, err := cuda.Open(0, c.options)
		if err != nil {
			t.Fatal(err)
		}
		products := d.Info().Products
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if c.options.TF32 && !strings.HasPrefix(products, "cuBLAS") {
			t.Skip("no TF32: " + products)
		}
		if c.options.TF32 != strings.HasSuffix(products, "in TF32") {
			t.Errorf("%+v: %q", c.options, products)
		}
		got, err := product(t, c.options, a, b)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if math.Abs(float64(got[i]-c.want[i])) > 2e-5 {
				t.Errorf("%s: %v, want %v", products, got, c.want)
				break
			}
		}
	}
}

func TestAHandleThatCannotBeHadIsAnError(t *testing.T) {
	testdevice.Software(t)
	library, err := purego.Dlopen(os.Getenv("HOPFEED_LIBCUBLAS"), purego.RTLD_NOW)
	if err != nil {
		t.Skip("for the software cuBLAS alone")
	}
	var fail func(int32)
	purego.RegisterLibFunc(&fail, library, "softcublas_fail")
	defer fail(0)
	fail(1)
	if _, err := product(t, cuda.Options{}, make([]float32, 6), make([]float32, 6)); err == nil ||
		!strings.Contains(err.Error(), "Gemm(") || !strings.Contains(err.Error(), "cuBLAS gives status 1") {
		t.Errorf("a product without a handle: %v", err)
	}
}

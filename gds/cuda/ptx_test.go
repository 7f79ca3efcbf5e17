//go:build cuda && cgo && linux

package cuda_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/cuda"
	"github.com/hopfeed/hopfeed/gds/testdevice"
)

// leaves5 makes thread 5 leave.
const leaves5 = "mov.u32 %r999, %tid.x;\n\tsetp.eq.u32 %p999, %r999, 5;\n\t@%p999 ret;\n\t"

// Faults that are planted in the kernels that ship are found where they are interpreted, each by an operation whose
// results they might leave right.
func TestFaultsInKernelsAreFound(t *testing.T) {
	soft := testdevice.Software(t)
	sumEdgesGrad := func(s gds.Stream, x, y gds.Tensor, u gds.Tensor) {
		s.SumEdgesGrad(gds.NewTensor(x.Buf, 1, 8, gds.Float32), gds.NewTensor(y.Buf, 2, 8, gds.Float32),
			u.Columns(0, 3), u.Columns(4, 9), gds.NewTensor(y.Buf, 1, 5, gds.Float32))
	}
	const bytes = 1 << 20 // what is smaller is not aligned to pages, and gets more
	square := func(x gds.Tensor) gds.Tensor { return gds.NewTensor(x.Buf, 32, 32, gds.Float32) }
	for _, c := range []struct {
		name         string
		file, kernel string
		old, new     string // the first in the kernel that matches
		run          func(s gds.Stream, x, y, u gds.Tensor)
		says         string
	}{
		{name: "nothing", file: "dense", kernel: "transpose", old: `\bret;`, new: "ret;",
			run: func(s gds.Stream, x, y, _ gds.Tensor) { s.Transpose(1, square(x), 0, square(y)) }},
		{name: "a barrier is missing", file: "dense", kernel: "transpose", old: `bar\.sync\s+0;`,
			run:  func(s gds.Stream, x, y, _ gds.Tensor) { s.Transpose(1, square(x), 0, square(y)) },
			says: "nobody has written|a race"},
		{name: "a barrier between steps of a sum is missing", file: "optimizer", kernel: "squares",
			old: `(?s)(bar\.sync\s+0;.*?)bar\.sync\s+0;`, new: "$1",
			run: func(s gds.Stream, x, _, _ gds.Tensor) { s.ClipNorm(x, 1) }, says: "a race"},
		{name: "a warp does not meet", file: "attention", kernel: "attention", old: `bar\.warp\.sync\s+-1;`,
			run: func(s gds.Stream, x, y, _ gds.Tensor) {
				s.Attention(gds.NewTensor(y.Buf, 4, 8, gds.Float32), gds.NewTensor(y.Buf, 16, 4, gds.Float32).Slice(8, 12),
					gds.NewTensor(x.Buf, 4, 24, gds.Float32), 2, 1)
			}, says: "a race"},
		{name: "an addition is not atomic", file: "loss", kernel: "count_correct",
			old: `atom\.global\.add\.u64\s+(%rd\d+), (\[%rd\d+\]), 1;`,
			new: "ld.global.u64 $1, $2; add.s64 $1, $1, 1; st.global.u64 $2, $1;",
			run: func(s gds.Stream, x, y, u gds.Tensor) {
				labels := gds.NewTensor(u.Buf, 1, 32, gds.Int32)
				s.Fill(labels, 0)
				s.CountCorrect(gds.NewTensor(y.Buf, 1, 2, gds.Int64), square(x), labels)
			}, says: "a race"},
		{name: "a barrier of a sort is missing", file: "edges", kernel: "sort_by_source", old: `bar\.sync\s+0;`,
			run: sumEdgesGrad, says: "a race|nobody has written"},
		{name: "one element too many", file: "elementwise", kernel: "axpy", old: `setp\.lt\.u64`, new: "setp.le.u64",
			run: func(s gds.Stream, x, y, _ gds.Tensor) {
				s.Axpy(1, gds.NewTensor(x.Buf, 1, bytes/4, gds.Float32), gds.NewTensor(y.Buf, 1, bytes/4, gds.Float32))
			}, says: "1048580 bytes from the start of memory of 1048576"},
		{name: "an address that is not aligned", file: "elementwise", kernel: "mul", old: `(ld\.global\.f32\s+%f\d+, \[%rd\d+)\]`,
			new: "$1+2]", run: func(s gds.Stream, x, y, _ gds.Tensor) { s.Mul(y, x, x) }, says: "not aligned"},
		{name: "a word of shared memory is not written", file: "dense", kernel: "sum_rows", old: `st\.shared\.f32[^;]*;`,
			run:  func(s gds.Stream, x, y, _ gds.Tensor) { s.SumRows(y.Columns(0, 32), 0, square(x)) },
			says: "nobody has written"},
		{name: "a word of work space is not written", file: "dense", kernel: "sum_rows", old: `st\.global\.f32[^;]*;`,
			run:  func(s gds.Stream, x, y, _ gds.Tensor) { s.SumRows(y.Columns(0, 32), 0, square(x)) },
			says: "kernel sum_slabs, block 0, thread 0"},
		{name: "a register is not written", file: "elementwise", kernel: "mul", old: `mul\.rn\.f32\s+(%f\d+)`,
			new: "mul.rn.f32 %f999", run: func(s gds.Stream, x, y, _ gds.Tensor) { s.Mul(y, x, x) },
			says: "a register that was never written"},
		{name: "the mask lacks a lane", file: "norm", kernel: "normalize_rows_4", old: `mov\.u32\s+(%r\d+), -1;`,
			new:  "mov.u32 $1, 0x7fffffff;",
			run:  func(s gds.Stream, x, y, u gds.Tensor) { normalize(s, square(x), square(y), u) },
			says: "the mask of members lacks the lane itself"},
		{name: "a lane has left", file: "norm", kernel: "normalize_rows_4", old: `shfl\.sync`, new: leaves5 + "shfl.sync",
			run:  func(s gds.Stream, x, y, u gds.Tensor) { normalize(s, square(x), square(y), u) },
			says: "a lane that has ended: 5"},
		{name: "a thread has left", file: "dense", kernel: "transpose", old: `bar\.sync`, new: leaves5 + "bar.sync",
			run:  func(s gds.Stream, x, y, _ gds.Tensor) { s.Transpose(1, square(x), 0, square(y)) },
			says: "a barrier that 1 threads of the block have ended without"},
	} {
		t.Run(c.name, func(t *testing.T) {
			soft.Interpret(true)
			defer soft.Lose(false)
			cuda.ChangePTX(t, c.file+".ptx", func(text string) string {
				start := strings.Index(text, ".visible .entry "+c.kernel+"(")
				old := regexp.MustCompile(c.old).FindStringSubmatchIndex(text[start:])
				if start < 0 || old == nil {
					t.Fatalf("%s.ptx has no %s in %s", c.file, c.old, c.kernel)
				}
				with := regexp.MustCompile(c.old).ExpandString(nil, c.new, text[start:], old)
				return text[:start+old[0]] + string(with) + text[start+old[1]:]
			})
			d := open(t, 0)
			s, err := d.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			var x [3]gds.Tensor
			for i, u := range []gds.DType{gds.Float32, gds.Float32, gds.Uint32} {
				b, err := d.Alloc(bytes)
				if err != nil {
					t.Fatal(err)
				}
				x[i] = gds.NewTensor(b, 1, 1024, u)
			}
			ones := make([]float32, 1024)
			for i := range ones {
				ones[i] = float32(i%7) + 1
			}
			// As offsets, 0, 3 and 5, and then five edges from one source.
			err = errors.Join(gds.Upload(d, s, x[0], ones), gds.Upload(d, s, x[1], ones),
				gds.Upload(d, s, x[2].Columns(0, 3), []uint32{0, 3, 5}))
			if err != nil {
				t.Fatal(err)
			}
			c.run(s, x[0], x[1], x[2])
			err = s.Synchronize(context.Background())
			fault := soft.Fault()
			if (err == nil) != (c.says == "") || !regexp.MustCompile(c.says).MatchString(fault) || c.says == "" && fault != "" {
				t.Errorf("%v; the fault is %q, want %q", err, fault, c.says)
			}
			soft.Lose(false)
			_ = s.Close() // it has the error
			for i := range x {
				if err := x[i].Buf.Free(); err != nil {
					t.Error(err)
				}
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func normalize(s gds.Stream, x, y, stats gds.Tensor) {
	one := x.Slice(0, 1)
	s.NormalizeRows(y, gds.NewTensor(stats.Buf, 32, 2, gds.Float32), x, one, one, 1e-5)
}

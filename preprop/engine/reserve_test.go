package engine

import (
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

func TestAJobTakesItsInputAndMemoryFromTheReserve(t *testing.T) {
	const room = 100
	for name, c := range map[string]struct {
		kept  []keptMatrix // matrix i has 1000 + 10 i bytes
		need  []int64
		whole bool
		taken []int64 // sizes; 0: none
		input bool    // is there
		stay  []int64
	}{
		"the input, and memory that fits best": {
			kept: []keptMatrix{{content: "x"}, {}, {}}, need: []int64{1000, 1005}, whole: true,
			taken: []int64{1000, 1010}, input: true},
		"another content is freed where there is no room": {
			kept: []keptMatrix{{content: "y"}}, need: []int64{500}, taken: []int64{0}},
		"another content without room is memory": {
			kept: []keptMatrix{{content: "y"}}, need: []int64{950}, taken: []int64{1000}},
		"an input is none for a job of some columns": {
			kept: []keptMatrix{{content: "x"}}, need: []int64{100}, taken: []int64{0}},
		"what is too large is freed": {kept: []keptMatrix{{}}, need: []int64{800}, taken: []int64{0}},
		"what is too small is freed": {kept: []keptMatrix{{}}, need: []int64{1001}, taken: []int64{0}},
	} {
		r := &Reserve{LimitBytes: 5000 + room}
		for i, k := range c.kept {
			buf, err := offheap.Alloc(1000 + int64(i)*10)
			if err != nil {
				t.Fatal(err)
			}
			k.Matrix = &product.Matrix{Buf: buf}
			r.kept = append(r.kept, k)
		}
		e := &engine{Job: &Job{Reserve: r, Plan: &plan.Plan{MemoryBytes: 5000},
			Sequences: []*HopSequence{{Input: &Input{Content: "x"}}}}, whole: c.whole}
		if err := e.takeReserve(c.need); err != nil {
			t.Fatal(err)
		}
		var taken, stay []int64
		for _, m := range e.reserved {
			size := int64(0)
			if m != nil {
				size = int64(len(m.Buf.Bytes()))
			}
			taken = append(taken, size)
		}
		for _, k := range r.kept {
			stay = append(stay, k.bytes())
		}
		if !slices.Equal(taken, c.taken) || (e.kept != nil) != c.input || !slices.Equal(stay, c.stay) {
			t.Errorf("%s: took %d, the input %v, kept %d", name, taken, e.kept != nil, stay)
		}
		e.matrices, e.reserved = e.reserved, nil
		if err := e.close(); err != nil {
			t.Error(err)
		}
		if err := r.Free(); err != nil {
			t.Error(err)
		}
	}
}

func TestAContentThatIsForgottenIsMemory(t *testing.T) {
	buf, err := offheap.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	r := &Reserve{LimitBytes: 64, kept: []keptMatrix{{&product.Matrix{Buf: buf}, "y"}}}
	take := func() *product.Matrix {
		e := &engine{Job: &Job{Reserve: r, Plan: &plan.Plan{}, Sequences: []*HopSequence{{Input: &Input{Content: "x"}}}}}
		if err := e.takeReserve([]int64{64}); err != nil {
			t.Fatal(err)
		}
		return e.reserved[0]
	}
	if take() != nil || len(r.kept) != 1 {
		t.Error("a content that may be needed was overwritten")
	}
	if r.Forget("y"); take() == nil || len(r.kept) != 0 {
		t.Error("memory that nobody needs was not taken")
	}
	if err := buf.Free(); err != nil {
		t.Error(err)
	}
}

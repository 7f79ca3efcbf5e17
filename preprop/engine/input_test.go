package engine

import (
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// A job that goes on with finished columns keeps no input in memory: its matrices may be overwritten.
func TestAJobThatGoesOnKeepsNoInput(t *testing.T) {
	e := &engine{Job: &Job{Plan: &plan.Plan{InputKept: true},
		Results:   []ColumnFiles{{Have: []product.ColumnRange{{First: 0, End: 1}}}},
		Sequences: []*HopSequence{{Input: &Input{}}}}}
	panels := []product.ColumnRange{{First: 0, End: 2}, {First: 2, End: 4}, {First: 4, End: 6}}
	if m := e.keep(e.Sequences[0].Input, panels, slices.Clone(panels)); m != nil {
		t.Errorf("%+v", m)
	}
}

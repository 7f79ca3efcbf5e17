package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// CheckStore refuses a store without training rows. Where storage must be among the placements it refuses chunks of a
// size that storage cannot give.
func CheckStore(store *format.Dir, chunkRows int, fromStorage bool) error {
	if r, ok := store.Region(format.RegionTrain); !ok || r.Rows == 0 {
		return session.Refuse("%s has no training rows: propagate with another --split", store.Path())
	}
	if rows := store.Layout().ChunkRows; fromStorage && chunkRows%rows != 0 {
		return fmt.Errorf("%w: storage is read in whole chunks, so --chunk-rows must be a multiple of %d, or "+
			"--placement leave storage out",
			placement.ErrContradiction, rows)
	}
	return nil
}

func oneDevice(m session.Machine) placement.Facts {
	f := m.Facts()
	f.Devices = 1
	return f
}

// CheckMemory refuses placements that memory does not allow, with the error of the one that needs most. It sets
// MemoryBytes.
func (o *LoadOptions) CheckMemory(m session.Machine) error {
	f := oneDevice(m)
	n, err := o.needs(f, session.Options{Matrices: o.Matrices, Buffers: o.Buffers})
	if err != nil {
		return err
	}
	o.MemoryBytes = int64(max(1, f.Budget.Bytes-machine.ProgramBytes))
	refused, _ := o.refusals(f, n)
	if len(refused) == 0 {
		return nil
	}
	return slices.MaxFunc(refused, byLeast).err
}

// needs is what a session takes that reads the training rows.
func (o *Options) needs(f placement.Facts, s session.Options) (placement.Needs, error) {
	s.Rows, s.Train = []loader.Rows{{Region: format.RegionTrain}}, true
	s.BatchRows, s.ChunkRows = o.BatchRows, o.ChunkRows
	return s.Needs(o.Store.Layout(), o.Store, f.Devices)
}

// refusal is why a placement does not fit, and the least memory with which it would.
type refusal struct {
	err   error
	least units.Bytes
}

func byLeast(a, b refusal) int { return cmp.Compare(a.least, b.least) }

// refusals has one for each placement that does not fit; possible: some placement fits.
func (o *Options) refusals(f placement.Facts, n placement.Needs) (all []refusal, possible bool) {
	for _, p := range o.Placements {
		asked := placement.Override{Placement: string(p)}
		if _, err := placement.Choose(f, n, asked); err != nil {
			all = append(all, refusal{err, n.Least(f, asked)})
		}
	}
	return all, len(all) < len(o.Placements)
}

// FindCases sets Cases: each model with each number of hops, and its possible placements. Spec is what all cases have
// in common. Without hops it takes 2 and all higher numbers that the store has. If no case fits, the error is that of
// the case that needs the least memory.
func (o *AblationOptions) FindCases(m session.Machine, spec trainer.Spec, models []string, hops []int) error {
	if len(hops) == 0 {
		hops = hopNumbers(o.Store.Manifest.Operators)
	}
	f := oneDevice(m)
	possible := false
	var refused []refusal
	for _, spec.Model = range slices.Compact(slices.Sorted(slices.Values(models))) {
		for _, h := range slices.Compact(slices.Sorted(slices.Values(hops))) {
			if h < 0 {
				return session.Refuse("--hops %d: must not be negative", h)
			}
			matrices, err := trainer.Matrices(spec.Model, o.Store.Matrices(), nil, []int{h})
			if err != nil {
				return session.Refuse("--hops: %s: %s", o.Store.Path(), err)
			}
			spec.Matrices = matrices
			n, err := o.needs(f, session.Options{Matrices: matrices, Model: spec})
			if err != nil {
				return err
			}
			// Only the alternatives are used, not the choice.
			d, _ := placement.Choose(f, n, placement.Override{Placement: placement.Auto, Shuffle: placement.Auto})
			found, fits := o.refusals(f, n)
			refused, possible = append(refused, found...), possible || fits
			o.Cases = append(o.Cases, AblationCase{Spec: spec, Hops: h, Alternatives: d.Alternatives})
		}
	}
	if possible {
		return nil
	}
	return slices.MinFunc(refused, byLeast).err
}

// hopNumbers lists the numbers of hops from 2 to what all operators have, or that number if it is less.
func hopNumbers(operators []format.Operator) []int {
	last := 0
	for i, op := range operators {
		if i == 0 || op.Hops < last {
			last = op.Hops
		}
	}
	hops := []int{min(last, 2)}
	for h := 3; h <= last; h++ {
		hops = append(hops, h)
	}
	return hops
}

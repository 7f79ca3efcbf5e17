package preprop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// In a typed graph, the columns of a type's features do not depend on each other along any metapath, as those of a
// plain graph along hops. So a task hops makes some columns of the features of a type, or of the labels, along all
// metapaths that begin there. What is on the way to the stored rows stays on its machine.

// openTyped divides the work, and opens what it starts from.
func (t *taskJob) openTyped() (err error) {
	if err := t.divide(); err != nil {
		return err
	}
	inputs := map[*typedMatrix]*engine.Input{}
	for i := range t.shares {
		s := &t.shares[i]
		if s.root.labels {
			continue
		}
		if inputs[s.root] == nil {
			d, err := t.typed.typed.OpenNodes(t.fsys, t.graphDir, s.root.name)
			if err != nil {
				return err
			}
			t.opened = append(t.opened, d)
			x, err := d.Matrix(format.Input)
			if err != nil {
				return err
			}
			in := engine.NewInput(x, nil, t.options.DType)
			in.Content = s.root.key
			inputs[s.root], t.inputs = in, append(t.inputs, in)
		}
		s.input = inputs[s.root]
	}
	t.tagInputs()
	return nil
}

// madeFrom are the matrices of which root has the columns.
func (t *typedJob) madeFrom(root *typedMatrix) (all []*typedMatrix) {
	for _, n := range t.order {
		if n.labels == root.labels && n.source.Name == root.source.Name {
			all = append(all, n)
		}
	}
	return all
}

// divide divides the columns of all features and labels into shares, by what their products take, and gives each, the
// largest first, to the task hops that has least to do.
func (t *taskJob) divide() error {
	type part struct {
		taskShare
		cost float64 // an edge costs a whole line of 64 bytes, however little of it a share takes
	}
	lines := func(columns int) float64 { return float64((columns*t.options.DType.Size() + 63) / 64) }
	edges, total := map[*typedMatrix]float64{}, 0.0
	var roots []*typedMatrix
	for _, root := range t.typed.order {
		if len(root.relations) > 0 {
			continue
		}
		missing, terms := false, float64(root.head.Nodes)
		for _, n := range t.typed.madeFrom(root) {
			missing = missing || len(t.typed.missing(n)) > 0
			if len(n.relations) > 0 {
				g, err := t.typed.mergedManifest(n.relations)
				if err != nil {
					return err
				}
				terms += float64(g.Edges + g.Nodes)
			}
		}
		if missing {
			roots, edges[root] = append(roots, root), terms
			total += terms * lines(root.source.Features)
		}
	}
	var parts []part
	for _, root := range roots {
		columns := root.source.Features
		count := min(float64(t.options.Tasks)*edges[root]*lines(columns)/total+0.5, lines(columns))
		width := plan.PanelColumns(columns, max(1, int(count)), columns, t.options.DType)
		for first := 0; first < columns; first += width {
			s := product.ColumnRange{First: first, End: min(first+width, columns)}
			parts = append(parts, part{taskShare{ColumnRange: s, root: root}, edges[root] * lines(s.Width())})
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.cost, a.cost) })
	loads := make([]float64, t.options.Tasks)
	for _, p := range parts {
		for i, load := range loads {
			if load < loads[p.task] {
				p.task = i
			}
		}
		loads[p.task] += p.cost
		t.shares = append(t.shares, p.taskShare)
	}
	return nil
}

// part is the job that makes a share.
func (t *taskJob) part(s taskShare) *typedJob {
	of := *t.jobContext
	of.share, of.labels, of.scratch = s.ColumnRange, nil, scratchInStore(t.storeDir)
	return &typedJob{jobContext: &of, typed: t.typed.typed, order: t.typed.madeFrom(s.root), normalize: t.typed.normalize,
		sizes: t.typed.sizes, layouts: t.typed.layouts, prefix: "step-"}
}

// planTypedHops says whether task hops-i is done, and what it takes.
func (t *taskJob) planTypedHops(i int, task *Task) error {
	results, err := t.results(nil)
	if err != nil {
		return err
	}
	for _, s := range t.sharesOf(i) {
		p := t.part(s)
		r := p.newResult()
		if err := p.predict(r); err != nil {
			return err
		}
		for _, n := range p.order { // other names of a matrix
			made := int64(max(0, len(p.missing(n))-1)) * t.target.StoredRows * int64(p.width(n)*t.options.DType.Size())
			task.ReadBytes, task.WrittenBytes = task.ReadBytes+made, task.WrittenBytes+made
		}
		task.MemoryBytes = max(task.MemoryBytes, r.Plan.MemoryBytes)
		task.ScratchBytes = max(task.ScratchBytes, r.Plan.ScratchBytes)
		task.ReadBytes, task.WrittenBytes = task.ReadBytes+r.Plan.ReadBytes, task.WrittenBytes+r.Plan.WrittenBytes
		task.computing += p.computing
		p.results = results
		task.Done = task.Done && p.finished()
	}
	return nil
}

// finished tells whether nothing is left to make.
func (t *typedJob) finished() bool {
	return !slices.ContainsFunc(t.order, func(n *typedMatrix) bool { return len(t.missing(n)) > 0 })
}

// typedHops makes shares of a typed graph.
func (t *taskJob) typedHops(ctx context.Context, shares []taskShare) (done bool, err error) {
	results, err := t.results(t.nodes)
	if err != nil {
		return false, err
	}
	done = true
	for _, s := range shares {
		p := t.part(s)
		if p.results = results; p.finished() {
			continue
		}
		done = false
		if err := t.makeShare(ctx, p, s); err != nil {
			if ctx.Err() != nil && !errors.Is(err, ErrUnfinished) {
				err = fmt.Errorf("%s: %w: %w", t.storeDir, err, ErrUnfinished)
			}
			return false, err
		}
	}
	return done, nil
}

// makeShare makes the columns of a share in result files.
func (t *taskJob) makeShare(ctx context.Context, p *typedJob, s taskShare) (err error) {
	if s.input != nil {
		cut, closeCuts, err := s.input.OpenCuts(t.files, t.folder, s.input.ChunkRanges(t.options.Tasks), s.ColumnRange)
		if err != nil {
			return notYet(err)
		}
		defer closeCuts()
		p.cut = cut
		p.cut.FirstColumn = 0 // steps number the columns that there are
	}
	scratch, err := t.ownScratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeSteps(t.fsys, scratch.Dir()), scratch.Close()) }()
	p.scratch = scratch.Dir()
	defer func() { err = errors.Join(err, p.closeDevice()) }()
	r := p.newResult()
	if err := p.predict(r); err != nil {
		return err
	}
	if err := machine.CheckSpace(t.fsys, p.scratch, r.Plan.ScratchBytes); err != nil {
		return err
	}
	return p.makeAll(ctx, r)
}

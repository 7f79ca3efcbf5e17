package preprop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// maker makes rows of a store anew, from the graph that the store was made from: by a job that stores one matrix of
// chosen nodes.
type maker struct {
	*jobContext // that has the table of the store's rows
	job         storeMaker
}

// openMaker opens the graph, and chooses rows by the options of the job that made the store.
func openMaker(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, m *format.Manifest, o Options) (_ *maker,
	err error) {
	o.Rows, o.ChunkRows, o.Split, o.Seed, o.LabelHops = m.RowSet, m.ChunkRows, m.Split, m.Seed, m.LabelHops
	if o.DType, err = dtype.Parse(m.DType); err != nil {
		return nil, fmt.Errorf("%s: %w", storeDir, err)
	}
	if o.Hops = 0; o.Rows == format.RowsChosen {
		return nil, fmt.Errorf("%s: %w: %w", storeDir, ErrOptions, errChosenRows)
	}
	for _, one := range m.Operators {
		parsed, err := operator.Parse(one.Name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", storeDir, err)
		case parsed.Metapath == "":
			o.Operators, o.Hops = append(o.Operators, parsed), max(o.Hops, one.Hops)
			continue
		case !parsed.Labels:
			o.Metapaths = append(o.Metapaths, parsed.Metapath)
		}
		o.Operators = []operator.Operator{{Name: parsed.Name}}
	}
	s, err := openJobContext(fsys, graphDir, storeDir)
	if err != nil {
		return nil, err
	}
	if m.Input["graph"] != s.graph.Manifest.Fingerprint {
		return nil, errors.Join(errOtherGraph(storeDir, graphDir), s.close())
	}
	job, err := s.openMaker(o)
	if err != nil {
		return nil, err
	}
	if err := s.chooseRows(ctx); err != nil {
		return nil, errors.Join(err, job.close())
	}
	return &maker{s, job}, nil
}

// repairDir is where a repair makes rows. A job of the store removes what a killed repair has left there.
func repairDir(storeDir string) string { return filepath.Join(scratchInStore(storeDir), "step-repair") }

// computeRows computes the rows of these nodes of one matrix, in this order.
func (m *maker) computeRows(ctx context.Context, id format.MatrixID, nodes []uint32) (rows []byte, err error) {
	width := m.layout.Of(id).Features * m.options.DType.Size()
	o := Options{Nodes: slices.Sorted(slices.Values(nodes)), DType: m.options.DType, Split: m.options.Split,
		Seed: m.options.Seed, Threads: m.options.Threads, MemoryBytes: m.options.MemoryBytes, Force: true,
		Progress: m.options.Progress}
	if o.MemoryBytes > 0 {
		// The row table, the nodes twice, and the rows twice: those before them the collector has yet to free.
		o.MemoryBytes -= plan.PickedBytes(&m.graph.Manifest, m.table.Rows) + 2*int64(len(nodes)*(width+4))
		if o.MemoryBytes <= 0 {
			return nil, plan.ErrDoesNotFit(m.options.MemoryBytes, m.options.MemoryBytes-o.MemoryBytes)
		}
	}
	if err := m.ask(&o, id); err != nil {
		return nil, err
	}
	dir := repairDir(m.storeDir)
	if err := removeStep(m.fsys, dir); err != nil {
		return nil, err
	}
	if _, err := propagate(ctx, m.fsys.FS, m.graphDir, dir, o); err != nil {
		return nil, errors.Join(err, removeStep(m.fsys, dir))
	}
	rows, err = rowsInOrder(ctx, m.fsys, dir, id, nodes)
	return rows, errors.Join(err, removeStep(m.fsys, dir))
}

// ask makes options ask for a matrix, and no more than it is made of: of a plain store, hops 0 to its own, whose rows
// are all written to repairDir.
func (m *maker) ask(o *Options, id format.MatrixID) (err error) {
	applied := operator.Operator{}
	if id != format.Input {
		if applied, err = operator.Parse(id.Operator); err != nil {
			return err
		}
	}
	switch {
	case applied.Metapath != "":
		o.Operators = []operator.Operator{{Name: applied.Name}}
		if applied.Labels {
			o.LabelHops, o.labelPaths = m.options.LabelHops, []string{applied.Metapath}
		} else {
			o.Metapaths = []string{applied.Metapath}
		}
	case id != format.Input:
		o.Operators, o.Hops = []operator.Operator{applied}, id.Hop
	case m.options.LabelHops > 0 && m.graph.Typed == nil: // the columns of labels come with a hop
		o.Operators, o.Hops = m.options.Operators[:1], 1
	}
	if m.graph.Typed == nil {
		o.LabelHops = min(m.options.LabelHops, o.Hops)
	}
	return nil
}

// rowsInOrder reads the rows of a matrix of a store, of these nodes.
func rowsInOrder(ctx context.Context, fsys vfs.FS, dir string, id format.MatrixID, nodes []uint32) (rows []byte,
	err error) {
	d, err := format.OpenStore(fsys, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	m, err := d.Matrix(id)
	if err != nil {
		return nil, err
	}
	rowOf, err := rowsOf(ctx, d, d.Manifest.Nodes)
	if err != nil {
		return nil, err
	}
	from := format.RowReader{Matrix: m}
	rows = make([]byte, 0, len(nodes)*m.Layout.Features*m.Layout.DType.Size())
	for _, v := range nodes {
		row, err := from.Row(int64(rowOf[v]))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row...)
	}
	return rows, nil
}

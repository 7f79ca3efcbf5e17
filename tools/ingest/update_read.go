package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// streamKept streams the edges of the graph that stay, in the order of the topology if threads is 1.
func (u *Update) streamKept(ctx context.Context, threads int, emit func(Edges) error) error {
	threads = max(1, min(threads, updateReaders))
	buffers := make(chan []byte, threads)
	for range threads {
		buffers <- nil
	}
	return parallel.For(ctx, threads, int64(u.topology.Ranges()), 1, func(k, _ int64) error {
		buffer := <-buffers
		defer func() { buffers <- buffer }()
		if buffer == nil {
			buffer = vfs.AlignedBytes(int(u.topology.RangeBytes()), vfs.PageBytes)
		}
		b, err := u.topology.ReadRange(int(k), buffer)
		if err != nil {
			return err
		}
		var e Edges
		u.eachEdge(&b, func(i int, key uint64, at int) {
			if at >= 0 || err != nil {
				return
			}
			e.Src, e.Dst = append(e.Src, uint32(key)), append(e.Dst, uint32(key>>32))
			if b.Weights != nil {
				e.Weights = append(e.Weights, b.Weights[i])
			}
			if len(e.Src) == edgeBlock {
				err = emit(e)
				e.Src, e.Dst, e.Weights = e.Src[:0], e.Dst[:0], e.Weights[:0]
			}
		})
		if err == nil && len(e.Src) > 0 {
			err = emit(e)
		}
		return err
	})
}

// tableByID is a table whose row i is of node nodes[i].
type tableByID struct {
	table
	nodes []uint32
}

func (t *tableByID) read(columns []int) (rows, error) {
	r, err := t.table.read(columns)
	return &rowsByID{r, t.nodes, -1}, err
}

type rowsByID struct {
	rows
	nodes []uint32
	row   int
}

func (r *rowsByID) next() error {
	r.row++
	return r.rows.next()
}

func (r *rowsByID) node() (int64, error) {
	if r.row >= len(r.nodes) {
		return 0, errChanged
	}
	return int64(r.nodes[r.row]), nil
}

// openNodes opens the table of nodes, and numbers new ones.
func (u *Update) openNodes(ctx context.Context) (err error) {
	path := u.options.Nodes
	if path == "" {
		return nil
	}
	parquet, err := isParquet(u.fsys, path)
	if err != nil {
		return err
	}
	var t *nodeTable
	if parquet {
		o := u.tableOptions()
		file, err := openParquetTable(u.fsys, path, u.scratch.MemoryBytes, o)
		if err != nil {
			return err
		}
		u.info.HeldBytes += file.Bytes()
		if t, err = file.chooseNodes(o.Columns); err != nil {
			return err
		}
		beside := int64(0) // features are read side by side
		for _, i := range slices.Concat(t.features, t.labels, t.splits) {
			beside += file.ReadBytes(file.columns[i])
		}
		if most := u.scratch.MemoryBytes; most > 0 && beside > most/2 {
			return fmt.Errorf("%s: %w: to read its columns side by side takes more than half of the memory that may "+
				"be used (raise --memory, or store the features as one list)", path, machine.ErrDoesNotFit)
		}
		u.info.RowReadBytes = beside
	} else if t, err = openTextNodes(u.fsys, textNodes{path: path, columns: u.options.Columns, want: allParts},
		&u.ids); err != nil {
		return err
	}
	if t.id < 0 {
		return badOptions("%s: the table needs a column of ids: name it with --%s", path, idRole.flag)
	}
	u.info.note(t.note(t.path, t.taken(), t.left()))
	if err := u.checkNodes(t); err != nil {
		return err
	}
	before, byID := u.graph.Manifest.Nodes, &tableByID{table: t.table}
	r, err := t.read([]int{t.id})
	if err != nil {
		return err
	}
	defer r.Close()
	for row := int64(0); ; row++ {
		if row%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.next(); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		node, err := u.ids.ofCell(r.cell(0), "")
		if err == nil && u.inTable.set(int64(node)) {
			err = errTwice
		}
		if err != nil {
			return atRow(r, err)
		}
		if int64(node) < before {
			u.NodesChanged, u.changed = u.NodesChanged+1, min(u.changed, int64(node))
		}
		byID.nodes = append(byID.nodes, node)
	}
	u.info.HeldBytes += 8*int64(len(byID.nodes)) + u.ids.nodes/8
	t.table, t.byRow, t.partial = byID, false, true
	u.table = t
	return nil
}

// checkNodes fails unless the columns of a table of nodes are those of the graph.
func (u *Update) checkNodes(t *nodeTable) error {
	m := &u.graph.Manifest
	as := asLabel
	if len(t.labels) > 1 {
		as = asOneLabel
	}
	for _, i := range t.labels {
		if err := t.check(i, as); err != nil {
			return err
		}
	}
	for _, i := range t.splits {
		if err := t.check(i, asSplit); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		what    string
		columns []int
		have    int
	}{{"labels", t.labels, m.Labels}, {"features", t.features, m.Features}} {
		if len(c.columns) == 0 {
			continue
		}
		if n, err := t.values(c.columns); err != nil {
			return err
		} else if c.have > 0 && n != c.have {
			return badOptions("%s has %d %s a node, and the graph has %d", t.path, n, c.what, c.have)
		}
	}
	if len(t.features) > 0 && m.Features == 0 {
		return badOptions("%s has features, and %s has none: leave their columns out", t.path, u.graph.Path())
	}
	if n := t.numSplits(); n > 0 && m.Splits > 0 && n != m.Splits {
		return badOptions("%s has %d splits, and the graph has %d", t.path, n, m.Splits)
	}
	own := map[string]string{}
	t.recordFeatures(own)
	want, have := m.Input[format.FeatureColumns], own[format.FeatureColumns]
	if len(t.features) > 0 && want != "" && have != "" && want != have {
		return badOptions("%s has the features %s, and the graph %s (--feature-columns chooses columns; their order is "+
			"that of the table)", t.path, have, want)
	}
	return nil
}

// openFeatures brings the features of the table to the places of their nodes in a scratch file.
func (u *Update) openFeatures(ctx context.Context) error {
	m := &u.graph.Manifest
	if u.table != nil && len(u.table.features) > 0 {
		var err error
		h := npy.Header{Shape: []int64{0, int64(m.Features)}}
		u.features, u.sum, err = u.copyMatrix(h, func(to *scratchMatrix) error {
			rows := &scratchRows{scratchMatrix: to, memoryBytes: u.scratch.MemoryBytes}
			if err := u.table.eachFeatures(ctx, m.Features, rows.put); err != nil {
				return err
			}
			return rows.flush()
		})
		if err != nil {
			return err
		}
	}
	if u.ids.nodes > m.Nodes && m.Input[format.MissingFeatures] == string(IdentityFor) {
		return badOptions("%s has the identity matrix as features, which new nodes widen: import the changed tables",
			u.graph.Path())
	}
	for v := m.Nodes; v < u.ids.nodes && m.Features > 0; v++ {
		if u.features != nil && u.inTable.has(v) {
			continue
		}
		var err error
		if u.ones, err = u.onlyOnes(ctx); err != nil || u.ones {
			return err
		}
		return invalid(cmp.Or(u.options.Nodes, "--nodes"), "no features of the new %s, which needs a row there",
			u.ids.name(v))
	}
	return nil
}

// onlyOnes tells whether the graph has the features of nodes that have none: a single 1.
func (u *Update) onlyOnes(ctx context.Context) (bool, error) {
	m := &u.graph.Manifest
	if m.Features != 1 {
		return false, nil
	}
	in, err := u.Features(1)
	if err != nil {
		return false, err
	}
	values := make([]float32, 1<<12)
	for left := m.Nodes; left > 0; left -= int64(len(values)) {
		values = values[:min(left, int64(len(values)))]
		if err := in.Read(ctx, values); err != nil {
			return false, err
		}
		if slices.ContainsFunc(values, func(x float32) bool { return x != 1 }) {
			return false, nil
		}
	}
	return true, nil
}

// updatedFeatures reads features of the changed graph.
type updatedFeatures struct {
	u    *Update
	from format.RowReader
	next int64 // row to read next
	sum  uint64
}

func (u *Update) Features(int) (FeatureReader, error) {
	from, err := u.graph.Matrix(format.Input)
	return &updatedFeatures{u: u, from: format.RowReader{Matrix: from}}, err
}

func (r *updatedFeatures) Read(ctx context.Context, dst []float32) error {
	m := &r.u.graph.Manifest
	for ; len(dst) > 0; dst, r.next = dst[m.Features:], r.next+1 {
		if r.next%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		row := dst[:m.Features]
		switch {
		case r.u.features != nil && r.u.inTable.has(r.next):
			at := r.next * int64(m.Features)
			if err := r.u.features.ReadBytes(dtype.BytesOf(row), 4*at); err != nil {
				return err
			}
			r.sum += sumElements(at, 1, row)
			if m.Input[format.NormalizeFeatures] == "true" {
				normalize(row)
			}
		case r.next < m.Nodes:
			stored, err := r.from.Row(r.next)
			if err != nil {
				return err
			}
			dtype.Decode(row, stored, r.from.Layout.DType)
		default: // a graph of ones
			row[0] = 1
		}
	}
	if r.u.features != nil && r.next == r.u.info.Nodes && r.sum != r.u.sum {
		return fmt.Errorf("%s: %w", r.u.features.Path(), folder.ErrDamaged)
	}
	return nil
}

func (r *updatedFeatures) Place(row int64) string {
	if r.u.inTable.has(row) {
		return fmt.Sprintf("%s: %s", r.u.table.path, r.u.ids.name(row))
	}
	return fmt.Sprintf("%s: %s", r.u.graph.Path(), r.u.ids.name(row))
}

func (r *updatedFeatures) Close() error { return r.from.Close() }

// Rows is the row table of the changed graph: rows of the table of nodes, and else those of the graph.
func (u *Update) Rows(ctx context.Context) (*format.RowTable, error) {
	m, t := &u.graph.Manifest, &format.RowTable{Rows: u.info.Nodes}
	var labels, splits []int // of the table
	labelColumns := m.Labels
	if u.table != nil {
		labels, splits = u.table.labels, u.table.splits
	}
	if len(labels) > 0 {
		labelColumns, _ = u.table.values(labels) // which checkNodes has seen
	}
	if labelColumns > 0 {
		names := m.ClassNames
		if len(labels) == 0 { // labels stay the numbers that they are
			names = nil
		}
		found, err := readLabels(labelsAs(m), u.graph.Path(), int64(labelColumns), t, func(sink *labelSink) error {
			if sink.ordered = m.Input["source"] == npyFormat.Name; sink.ordered && sink.kind == nameLabels {
				for class, name := range names { // which meta.json has given in this order
					sink.names[name] = int32(class)
				}
			}
			if len(labels) > 0 {
				if err := u.table.readLabels(ctx, sink); err != nil {
					return err
				}
			}
			if isNumber := func(name string) bool { return isFloat([]byte(name)) }; sink.numbers && names != nil &&
				!slices.ContainsFunc(names, isNumber) {
				return invalid(u.table.path, "a label is a number, and the classes of the graph have names: %s", listed(names))
			}
			return u.eachStored(ctx, len(labels) > 0, func(old *format.RowTable, i, v int64) error {
				return sink.stored(old, i, v, names)
			})
		})
		if err != nil {
			return nil, err
		}
		if m.Labels > 0 && m.LabelValues != (t.LabelValues != nil) {
			return nil, invalid(u.table.path, "its labels are of another kind than those of the graph")
		}
		if u.info.ClassNames = found.names; len(labels) == 0 {
			u.info.ClassNames = m.ClassNames
		}
	}
	if t.NumSplits = m.Splits; len(splits) > 0 {
		t.NumSplits = u.table.numSplits()
	}
	if t.NumSplits > 0 {
		t.Splits = make([]uint8, t.Rows*int64(t.NumSplits))
	}
	if len(splits) > 0 {
		if err := u.table.readSplits(ctx, t, 0); err != nil {
			return nil, err
		}
	}
	if k := int64(m.Splits); k > 0 {
		if err := u.eachStored(ctx, len(splits) > 0, func(old *format.RowTable, i, v int64) error {
			copy(t.Splits[v*k:], old.Splits[i*k:(i+1)*k])
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if m.OrigIDs {
		t.OrigID = u.ids.ids.strings()
	}
	return t, nil
}

// labelsAs says what the labels of a graph are.
func labelsAs(m *format.Manifest) LabelsAs {
	switch {
	case m.LabelValues:
		return LabelsAsValues
	case m.Labels > 1:
		return LabelsAsMulti
	case m.ClassNames != nil:
		return LabelsAsClasses
	}
	return LabelsByContent
}

// eachStored calls body with the rows of the graph: row i of a table is node v. changed: not of nodes that have a row
// in the table of nodes.
func (u *Update) eachStored(ctx context.Context, changed bool,
	body func(t *format.RowTable, i, v int64) error) (failed error) {
	err := u.graph.VisitRows(ctx, func(t *format.RowTable, first int64) {
		for i := range t.Rows {
			if failed == nil && (!changed || !u.inTable.has(first+i)) {
				failed = body(t, i, first+i)
			}
		}
	})
	return errors.Join(err, failed)
}

// stored takes the labels of a row of a graph for node v. names are those of classes, if these have names.
func (s *labelSink) stored(t *format.RowTable, i, v int64, names []string) (err error) {
	for k := range s.columns {
		at := i*s.columns + k
		switch {
		case t.LabelValues != nil:
			err = s.number(v, k, float64(t.LabelValues[at]))
		case t.MultiLabels != nil:
			err = s.number(v, k, float64(t.MultiLabels[at]))
		case t.Labels != nil && t.Labels[at] >= 0 && names != nil:
			err = s.text(v, k, []byte(names[t.Labels[at]]))
		case t.Labels != nil && t.Labels[at] >= 0:
			err = s.text(v, k, strconv.AppendInt(nil, int64(t.Labels[at]), 10))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkColumns fails unless columns of a table are columns that the graph has, and all of these if all is true.
func (u *Update) checkColumns(of, flag, path string, given []*tableColumn, all bool) error {
	for _, own := range given {
		at := slices.IndexFunc(u.graph.Manifest.Columns, func(c format.Column) bool { return c.Name == own.Name })
		if at < 0 {
			return badOptions("--%s: the graph has no column %s", flag, own.Name)
		}
		if c := &u.graph.Manifest.Columns[at]; c.DType != own.DType || c.Columns != own.Columns {
			return badOptions("%s: the column %s of the graph is %s [%d], and that of the table %s [%d] (--%s NAME:TYPE)",
				path, c.Name, c.DType, c.Columns, own.DType, own.Columns, flag)
		}
	}
	for _, c := range u.columnsOfGraph(of) {
		if all && !slices.ContainsFunc(given, func(own *tableColumn) bool { return own.Name == c.Name }) {
			return badOptions("%s: the graph has the column %s of %s: say which column gives it with --%s NAME:TYPE",
				path, c.Name, of, flag)
		}
	}
	return nil
}

// openNodeColumns reads columns of nodes: those of the graph, and over them the rows of the table.
func (u *Update) openNodeColumns(ctx context.Context) error {
	m, ofEdges, added := &u.graph.Manifest, len(u.columns), u.ids.nodes > u.graph.Manifest.Nodes
	if u.table != nil && len(u.table.kept) > 0 {
		if err := u.chooseColumns(u.table, u.table.header, u.table.path, format.OfNodes,
			u.options.Columns); err != nil {
			return err
		}
	}
	columns := u.columns[ofEdges:]
	err := u.checkColumns(format.OfNodes, nodeColumnsFlag, cmp.Or(u.options.Nodes, "--nodes"), columns, added)
	if err != nil || len(columns) == 0 {
		return err
	}
	u.info.Nodes = u.ids.nodes
	if err := u.allocColumns(u.table.path, columns); err != nil {
		return err
	}
	for _, c := range columns {
		from, _, err := u.graph.Column(c.Name)
		if err != nil {
			return err
		}
		for k := range from.Chunks() {
			first, rows := from.ChunkRowRange(k)
			if err := from.ReadChunk(k, c.memory.Bytes()[first*c.RowBytes():][:int64(rows)*c.RowBytes()]); err != nil {
				return err
			}
		}
		if err := u.readColumns(ctx, u.table, c); err != nil {
			return err
		}
	}
	for v := m.Nodes; v < u.ids.nodes; v++ { // without features, since these are ones
		if !u.inTable.has(v) {
			return invalid(u.table.path, "no row of the new %s, and columns want one of each node", u.ids.name(v))
		}
	}
	u.info.HeldBytes += m.Nodes / 8
	return nil
}

// columnsOfGraph are the columns of edges or nodes that the graph has.
func (u *Update) columnsOfGraph(of string) []format.Column {
	return slices.DeleteFunc(slices.Clone(u.graph.Manifest.Columns), func(c format.Column) bool { return c.Of != of })
}

// Columns are those that change.
func (u *Update) Columns() (columns []inputColumn) {
	for _, c := range u.edgeList.Columns() {
		if c.Of == format.OfNodes {
			columns = append(columns, c)
		}
	}
	if u.same().topology {
		return columns
	}
	for _, c := range u.columnsOfGraph(format.OfEdges) {
		merged := &updatedColumn{u: u, name: c.Name}
		for _, own := range u.columns {
			if own.Name == c.Name {
				merged.added = own
			}
		}
		columns = append(columns, inputColumn{Column: c, path: u.graph.Path(), rows: u.Info().Edges, read: merged.read})
	}
	return columns
}

// updatedColumn reads a column of edges in the order of Update.Edges.
type updatedColumn struct {
	u     *Update
	name  string
	added *tableColumn // nil: no edge is added
	from  format.RowReader
}

func (c *updatedColumn) read(p []byte, off int64) (err error) {
	if c.from.Matrix == nil {
		if c.from.Matrix, _, err = c.u.graph.Column(c.name); err != nil {
			return err
		}
	}
	size := int64(c.from.Layout.Features * c.from.Layout.DType.Size())
	for row := off / size; len(p) > 0 && err == nil; row, p = row+1, p[size:] {
		if added := row - c.u.kept; added >= 0 {
			edge := int64(sort.Search(int(c.u.edges.edges), func(e int) bool {
				return c.u.addedBefore(int64(e)+1) > added
			}))
			err = c.added.read(p[:size], edge*size)
			continue
		}
		removed := sort.Search(len(c.u.removedAt), func(i int) bool { return c.u.removedAt[i]-int64(i) > row })
		var stored []byte
		stored, err = c.from.Row(row + int64(removed))
		copy(p[:size], stored)
	}
	return err
}

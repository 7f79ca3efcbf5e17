package preprop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Propagate reads the graph in graphDir and writes the hop store storeDir. What does
// not fit into o.MemoryBytes or on the disk is refused with machine.ErrDoesNotFit
// before anything is written. A dry run ends there, with what is planned.
//
// A job that ends before the store is complete, by whatever, leaves what it has done
// in storeDir, out of sight of readers, and the same call goes on with it; other
// options are refused with ErrOptions, unless o.Force starts anew. A store that is
// complete stays as it is. Only where the graph's own numbers are ErrInvalid nothing
// is left.
func Propagate(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, o Options) (*Result, error) {
	s, err := openSite(fsys, graphDir, storeDir)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if s.o, err = o.withDefaults(&s.graph.Manifest, s.graph.Layout().DType); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", graphDir, ErrOptions, err)
	}
	if err := s.chooseRows(ctx); err != nil {
		return nil, err
	}
	if complete, err := s.published(); complete != nil || err != nil {
		return complete, err
	}
	return s.run(ctx)
}

// site is a job with the directories that it is about.
type site struct {
	start              time.Time
	raw                vfs.FS
	fsys               *vfs.Count
	graphDir, storeDir string
	graph              *format.Dir
	o                  Options
	target             target
	layout             format.Layout
	nodes              []uint32         // of the store's rows
	table              *format.RowTable // of the store; nil: it is there
	grown              *format.Dir      // the store, if it is there and grows
}

func openSite(fsys vfs.FS, graphDir, storeDir string) (*site, error) {
	s := &site{start: time.Now(), raw: fsys, fsys: vfs.NewCount(fsys), graphDir: graphDir, storeDir: storeDir}
	var err error
	if s.graph, err = format.OpenAny(s.fsys, graphDir); err != nil {
		return nil, err
	}
	if kind := s.graph.Manifest.Kind; kind != format.KindGraph {
		return nil, errors.Join(fmt.Errorf("%s: %w: it is a %s, and propagation reads a graph", graphDir, ErrOptions, kind), s.graph.Close())
	}
	if err := checkApart(fsys, graphDir, storeDir); err != nil {
		return nil, errors.Join(err, s.graph.Close())
	}
	return s, nil
}

func (s *site) close() error {
	err := s.graph.Close()
	if s.grown != nil {
		err = errors.Join(err, s.grown.Close())
	}
	return err
}

// checkMadeFrom fails unless a store was made from the graph.
func (s *site) checkMadeFrom(store *format.Manifest) error {
	if store.Input["graph"] != s.graph.Manifest.Fingerprint {
		return fmt.Errorf("%s: %w: it was not made from %s, or the graph has changed", s.storeDir, ErrOptions, s.graphDir)
	}
	return nil
}

// chooseRows finds the rows of a new store, and with them all that it will be.
func (s *site) chooseRows(ctx context.Context) error {
	table, err := s.graph.Rows(ctx)
	if err != nil {
		return err
	}
	nodes, sizes := storeRows(table, s.o.Rows, s.o.Split, s.o.Seed)
	if len(nodes) == 0 && s.o.Rows == format.RowsLabeled {
		return fmt.Errorf("%s: %w: no node has a label or is in a split, so there is nothing to store (to store all nodes, say --rows all)", s.graphDir, ErrOptions)
	}
	s.nodes, s.table = nodes, pickRows(table, nodes)
	s.layout = format.NewLayout(sizes, s.o.ChunkRows, s.graph.Manifest.Features, s.o.DType)
	s.target = target{
		Graph: s.graph.Manifest.Fingerprint, Rows: s.o.Rows, Split: s.o.Split, Seed: s.o.Seed,
		DType: s.o.DType.String(), ChunkRows: s.layout.ChunkRows, Features: s.layout.Features, StoredRows: int64(len(nodes)),
	}
	for _, operator := range s.o.Operators {
		s.target.Operators = append(s.target.Operators, format.Operator{Name: operator.String(), Hops: s.o.Hops})
	}
	return nil
}

// published tells of a store that is complete, and refuses to touch one that is another.
func (s *site) published() (*Result, error) {
	if s.o.Force {
		return nil, nil
	}
	store, err := format.OpenAny(s.fsys, s.storeDir)
	if errors.Is(err, format.ErrIncomplete) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil // what else is there, creating it will tell
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", format.ErrExists, err)
	}
	defer store.Close()
	if store.Manifest.Kind != format.KindStore {
		return nil, fmt.Errorf("%s: %w, and is a %s (give another directory)", s.storeDir, format.ErrExists, store.Manifest.Kind)
	}
	if difference := targetOf(&store.Manifest).differs(s.target); difference != "" {
		return nil, fmt.Errorf("%s: %w, and is another: %s (--add-hops and --add-operator add to it, --force replaces it)", s.storeDir, format.ErrExists, difference)
	}
	r := s.result(&Plan{})
	r.AlreadyComplete, r.Published = true, true
	return r, nil
}

// result is what is known before the work.
func (s *site) result(p *Plan) *Result {
	return s.describe(&s.graph.Manifest, p, int64(len(s.nodes)))
}

func (s *site) describe(g *format.Manifest, p *Plan, rows int64) *Result {
	r := &Result{
		Nodes: g.Nodes, Edges: g.Edges, Features: g.Features,
		Operators: []string{}, ProductsPerHop: []int{}, TruncationErrors: []float64{}, Hops: s.o.Hops, Rows: rows, DType: s.target.DType,
		HopSeconds: []float64{}, EdgesProcessed: []int64{},
		MemoryBudgetBytes: s.o.MemoryBytes, Plan: *p,
		Output: s.storeDir,
	}
	for _, operator := range s.o.Operators {
		terms := operator.series()
		r.Operators = append(r.Operators, operator.String())
		r.ProductsPerHop = append(r.ProductsPerHop, terms.products())
		r.TruncationErrors = append(r.TruncationErrors, terms.bound)
	}
	return r
}

// newJob is the job as it is before anything is done.
func (s *site) newJob() (*job, error) {
	j := &job{
		Options: &s.o, fsys: vfs.NewCount(s.fsys), graph: s.graph, nodes: s.nodes, matrices: s.target.matrices(),
		columns: s.o.Shard.columns(s.layout.Features), finished: map[format.MatrixID]bool{},
	}
	j.have, j.hopSeconds, j.edges = make([][]span, len(j.matrices)), make([]float64, len(j.matrices)), make([]int64, len(j.matrices))
	features, err := s.graph.Matrix(format.Input)
	if err != nil {
		return nil, err
	}
	first := &input{Matrix: features, path: s.graphDir, dtype: s.o.DType}
	for i, operator := range s.o.Operators {
		c := &chain{operator: operator, input: first, hops: s.target.Operators[i].Hops}
		if s.grown != nil {
			if err := s.startFromStore(c); err != nil {
				return nil, err
			}
		}
		j.chains = append(j.chains, c)
	}
	if len(j.chains) == 0 {
		j.chains = []*chain{{input: first}}
	}
	return j, nil
}

// work is what a job has to do.
func (s *site) work(j *job) (*work, error) {
	g := &s.graph.Manifest
	w := &work{
		nodes: g.Nodes, edges: g.Edges, weighted: g.Weighted,
		features: g.Features, columns: j.columns.width(), from: s.graph.Layout().DType, to: s.o.DType,
		inputChunk: int64(g.ChunkRows) * int64(g.Features) * int64(s.graph.Layout().DType.Size()),
		rows:       int64(len(s.nodes)), rowTable: rowTableBytes(g), threads: s.o.Threads, pieces: s.o.Shard.Count > 1,
	}
	inputs := j.inputs()
	for _, c := range j.chains {
		if j.lastLacking(c, j.columns) > 0 {
			w.chains = append(w.chains, chainWork{c.operator, c.hops - c.from, slices.Index(inputs, c.input)})
		}
	}
	var made []format.MatrixID
	for _, id := range j.matrices {
		if !j.finished[id] {
			made = append(made, id)
		}
	}
	w.matrices = len(made)
	var err error
	w.storeBytes, err = storeBytes(g, s.layout, made)
	return w, err
}

// plan plans for this machine, or the one that is described.
func (s *site) plan(ctx context.Context, j *job) (*Plan, error) {
	w, err := s.work(j)
	if err != nil {
		return nil, err
	}
	if s.layout.Features == 0 {
		return nil, fmt.Errorf("%s: %w: its nodes have no features", s.graphDir, ErrOptions)
	}
	r := &nominal
	if s.o.Hardware != nil {
		r = ratesOf(*s.o.Hardware)
	}
	p, err := w.plan(s.o.MemoryBytes, r)
	if err != nil || s.o.Hardware != nil || p.ReadBytes+p.WrittenBytes < probeFrom {
		return p, err
	}
	if r, err = measure(ctx, s.raw, j.chains[0].input, s.scratchParent(), w, s.o.MemoryBytes); err != nil {
		return nil, err
	}
	return w.plan(s.o.MemoryBytes, r)
}

// insideScratch is where scratch files are, unless Options.Scratch says where, and the
// locks of shards anyway.
func insideScratch(storeDir string) string {
	return filepath.Join(storeDir, filepath.FromSlash(format.ScratchFolder))
}

func (s *site) scratchParent() string {
	if s.o.Scratch != "" {
		return s.o.Scratch
	}
	return s.storeDir
}

// scratchFolder is where scratch files go: the same for every process of the job.
func (s *site) scratchFolder(store *format.Writer) (string, error) {
	inside, err := store.Scratch()
	if err != nil || s.o.Scratch == "" {
		return inside, err
	}
	folder, err := externalScratch(s.fsys, s.o.Scratch, s.storeDir, s.target)
	if err != nil {
		return "", err
	}
	return folder, s.fsys.MkdirAll(folder)
}

func externalScratch(fsys vfs.FS, scratch, storeDir string, t target) (string, error) {
	store, err := fsys.Resolve(storeDir)
	sum := sha256.Sum256([]byte(store + "\n" + t.String()))
	return filepath.Join(scratch, "hopfeed-"+hex.EncodeToString(sum[:8])), err
}

// checkDisk fails unless there is room for what is not there yet.
func (s *site) checkDisk(p *Plan) error {
	there, err := usedBytes(s.fsys, s.storeDir)
	if err != nil {
		return err
	}
	if s.grown != nil {
		there -= s.grown.Manifest.Bytes()
	}
	if s.o.Scratch == "" {
		return checkDisk(s.fsys, s.storeDir, "the store, with scratch files,", p.DiskBytes-there)
	}
	folder, err := externalScratch(s.fsys, s.o.Scratch, s.storeDir, s.target)
	if err != nil {
		return err
	}
	used, err := usedBytes(s.fsys, folder)
	if err != nil {
		return err
	}
	if err := checkDisk(s.fsys, s.o.Scratch, "scratch", p.ScratchBytes-used); err != nil {
		return err
	}
	return checkDisk(s.fsys, s.storeDir, "the store", p.StoreBytes-there)
}

// usedBytes is the size of all files in a folder, which need not be there.
func usedBytes(fsys vfs.FS, dir string) (int64, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	total := int64(0)
	for _, e := range entries {
		var bytes int64
		if e.IsDir() {
			bytes, err = usedBytes(fsys, filepath.Join(dir, e.Name()))
		} else if info, infoErr := e.Info(); infoErr == nil { // else gone meanwhile
			bytes = info.Size()
		}
		if err != nil {
			break
		}
		total += bytes
	}
	return total, err
}

// create starts the store, or goes on with it.
func (s *site) create() (*format.Writer, error) {
	text := s.target.String()
	var store *format.Writer
	var err error
	if s.grown != nil {
		store, err = format.Extend(s.fsys, s.storeDir, text)
	} else {
		store, err = format.Create(s.fsys, s.storeDir, s.layout, format.CreateOptions{Force: s.o.Force, Job: text})
	}
	var other *format.OtherJobError
	if errors.As(err, &other) {
		difference := "it is no propagation"
		if there, err := parseTarget(other.Have); err == nil {
			difference = there.differs(s.target)
		}
		instead := "start anew with --force"
		if s.grown != nil {
			instead = "remove " + filepath.Dir(insideScratch(s.storeDir)) + " to give it up"
		}
		return nil, fmt.Errorf("%s: %w: an unfinished job is there, and is another: %s (run that one again to finish it, or %s)",
			s.storeDir, ErrOptions, difference, instead)
	}
	return store, err
}

// run plans, works, and publishes.
func (s *site) run(ctx context.Context) (*Result, error) {
	if s.o.Scratch != "" {
		if err := checkScratch(s.fsys, s.o.Scratch, s.graphDir, s.storeDir); err != nil {
			return nil, err
		}
	}
	j, err := s.newJob()
	if err != nil {
		return nil, err
	}
	if s.grown != nil {
		for _, id := range s.grown.Matrices() {
			j.finished[id] = true
		}
	}
	if j.plan, err = s.plan(ctx, j); err != nil {
		return nil, err
	}
	r := s.result(j.plan)
	if err := s.checkDisk(j.plan); err != nil || s.o.DryRun {
		return r, err
	}
	if s.o.Shard.Count > 1 {
		err = s.runShard(ctx, j, r)
	} else {
		err = s.runAll(ctx, j, r)
	}
	if errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("%s: %w", s.graphDir, err)
	}
	if err != nil {
		return nil, err
	}
	s.report(j, r)
	return r, nil
}

// report fills in what was done.
func (s *site) report(j *job, r *Result) {
	seconds := 0.0
	for _, each := range j.hopSeconds {
		seconds += each
	}
	if seconds > 0 {
		r.GatheredBytesPerSecond = float64(j.gathered) / seconds
	}
	r.HopSeconds, r.EdgesProcessed = j.hopSeconds[1:], j.edges[1:]
	r.BytesRead, r.BytesWritten, r.ScratchBytes = s.fsys.Read(), s.fsys.Written(), j.fsys.Written()
	r.Seconds = time.Since(s.start).Seconds()
}

// noOthers fails while a shard is at work on the store, unless it is one of as many as
// the job's own: only then they have no columns in common.
func (s *site) noOthers() error {
	shards, err := runningShards(s.fsys, insideScratch(s.storeDir))
	if err != nil {
		return err
	}
	for _, shard := range shards {
		if !strings.HasSuffix(shard, fmt.Sprintf("-of-%d", s.o.Shard.Count)) {
			return fmt.Errorf("%s is being written: %w, shard %s", s.storeDir, vfs.ErrLocked, shard)
		}
	}
	return nil
}

func (s *site) planned(j *job) {
	if s.o.Planned != nil {
		s.o.Planned(j.plan)
	}
}

// runAll is a job that has the store to itself.
func (s *site) runAll(ctx context.Context, j *job, r *Result) error {
	if err := s.noOthers(); err != nil {
		return err
	}
	store, err := s.create()
	if err != nil {
		return err
	}
	s.planned(j)
	if err := s.workOn(ctx, j, store, r); err != nil {
		return s.leave(store, j, err)
	}
	return nil
}

// leave ends a job that has failed: so that it can go on, if there is anything to go
// on with, and the graph's numbers are not what is wrong. It returns err, and says so.
func (s *site) leave(store *format.Writer, j *job, err error) error {
	if !errors.Is(err, ErrInvalid) && s.somethingDone(store, j) {
		store.Suspend()
		return fmt.Errorf("%s: %w: %w", s.storeDir, err, ErrUnfinished)
	}
	if s.o.Scratch != "" && j.scratch != "" {
		s.fsys.RemoveAll(j.scratch)
	}
	store.Abort()
	return err
}

// somethingDone tells whether matrices, pieces or strips are there that the job has made.
func (s *site) somethingDone(store *format.Writer, j *job) bool {
	if s.anyFinished(store, j) {
		return true
	}
	for _, folder := range []string{insideScratch(s.storeDir), j.scratch} {
		if folder == "" { // there was no time to find it
			continue
		}
		entries, err := s.fsys.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			return !strings.HasSuffix(e.Name(), vfs.TempSuffix) && !strings.HasSuffix(e.Name(), lockSuffix)
		}) {
			return true
		}
	}
	return false
}

func (s *site) workOn(ctx context.Context, j *job, store *format.Writer, r *Result) error {
	if err := s.open(j, store); err != nil {
		return err
	}
	if err := s.noOthers(); err != nil { // none has begun meanwhile
		return err
	}
	r.Resumed = s.anyFinished(store, j) || j.anyPieces()
	if !j.plan.Pieces && !j.anyPieces() && !s.o.Assemble {
		j.store = store
	}
	if todo := j.todo(); s.o.Assemble && len(todo) > 0 {
		return fmt.Errorf("%s: %w: there is nothing to assemble yet, %s are not done (run their shards, or without --assemble)", s.storeDir, ErrOptions, todo[0])
	}
	if err := j.run(ctx); err != nil {
		return err
	}
	return s.finish(ctx, j, store, r)
}

// open finds what there is of a job, and writes its rows if they are not.
func (s *site) open(j *job, store *format.Writer) error {
	if s.table != nil {
		if err := store.Rows(s.table); err != nil {
			return err
		}
		s.table = nil
		debug.FreeOSMemory() // the plan counts on it
	}
	for _, id := range j.matrices {
		j.finished[id] = store.Finished(id)
	}
	var err error
	if j.scratch, err = s.scratchFolder(store); err != nil {
		return err
	}
	if err := s.sweep(j.scratch); err != nil {
		return err
	}
	j.pieces = newPieces(j.fsys, j.scratch, s.target, s.o.DType)
	j.have, err = j.pieces.found()
	return err
}

// sweep removes what processes that were killed have left half-written, which would
// take room that the plan counts on. The job is locked, so that no shard begins.
func (s *site) sweep(folder string) error {
	shards, err := runningShards(s.fsys, insideScratch(s.storeDir))
	if err != nil || len(shards) > 0 {
		return err
	}
	entries, err := s.fsys.ReadDir(folder)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), vfs.TempSuffix) {
			err = errors.Join(err, s.fsys.Remove(filepath.Join(folder, e.Name())))
		}
	}
	return err
}

func (j *job) anyPieces() bool {
	for _, spans := range j.have {
		if len(spans) > 0 {
			return true
		}
	}
	return false
}

// anyFinished tells whether the job has finished matrices, beside those that a store
// had before it grew.
func (s *site) anyFinished(store *format.Writer, j *job) bool {
	return slices.ContainsFunc(j.matrices, func(id format.MatrixID) bool {
		return store.Finished(id) && (s.grown == nil || !slices.Contains(s.grown.Matrices(), id))
	})
}

// finish assembles and publishes the store, whose matrices are all there.
func (s *site) finish(ctx context.Context, j *job, store *format.Writer, r *Result) error {
	if err := j.assemble(ctx, store); err != nil {
		return err
	}
	g := &s.graph.Manifest
	m := &format.Manifest{
		Kind: format.KindStore, Name: g.Name,
		Nodes: g.Nodes, Edges: g.Edges, Directed: g.Directed, Weighted: g.Weighted,
		Classes: g.Classes, Labels: g.Labels, Splits: g.Splits,
		Split: s.target.Split, RowSet: s.target.Rows, Seed: s.target.Seed,
		Operators: s.target.Operators,
		Input:     map[string]string{"graph": g.Fingerprint},
	}
	if err := store.Publish(m); err != nil {
		return err
	}
	r.Published = true
	if s.o.Scratch != "" {
		return s.fsys.RemoveAll(j.scratch)
	}
	return nil
}

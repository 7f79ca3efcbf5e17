package training

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// Request holds the user's options of a training. Resolve completes it for the data.
type Request struct {
	Input     string // the store's or graph's name, in errors
	Model     string
	Operators []string // none: all
	Hops      []int    // one number for all operators, or one for each; none: all
	Training
	Default    map[string]bool // flags whose settings follow from the model and the number of training rows
	Weights    string          // of classes in the loss: numbers, or BalancedWeights
	Split      int             // that is trained on; < 0: the store's
	SplitsFile string          // of splits of the nodes; "": the input's own splits
	Saves      bool            // the training is saved
	Importance bool            // each run ends with trainer.Fitting.MeasureImportance, if it is tested
	// Labels of training, validation and test rows, once they are counted.
	Labels []session.Labels
}

// BalancedWeights are weights of classes that make classes count the same.
const BalancedWeights = "balanced"

// ReadsGraph tells that the model reads a graph, not a hop store.
func (r *Request) ReadsGraph() (bool, error) {
	aggregation, err := trainer.AggregationOf(r.Model)
	if err != nil {
		err = session.Refuse("--model: %s", err)
	}
	return aggregation != "", err
}

// FillDefaults sets the settings in Default for trainRows training rows.
func (r *Request) FillDefaults(trainRows int64) error {
	d, err := trainer.Defaults(r.Model, trainRows)
	if err != nil {
		return session.Refuse("--model: %s", err)
	}
	for flag, set := range map[string]func(){
		"lr":           func() { r.LearningRate = d.LearningRate },
		"weight-decay": func() { r.WeightDecay = d.WeightDecay },
		"batch":        func() { r.BatchRows = d.BatchRows },
		"epochs":       func() { r.Epochs = d.Epochs },
		"patience":     func() { r.Patience = d.Patience },
	} {
		if r.Default[flag] {
			set()
		}
	}
	return nil
}

// DefaultFlags are the keys of Request.Default.
func DefaultFlags() []string { return []string{"lr", "weight-decay", "batch", "epochs", "patience"} }

// Check refuses what cannot be, whatever the data.
func (r *Request) Check() error {
	placements := []string{placement.Auto, placement.Device, placement.Host, placement.Storage}
	shuffles := []string{placement.Auto, placement.RR, placement.CR}
	switch {
	case !slices.Contains(placements, r.Placement):
		return session.Refuse("--placement %q: want one of %s", r.Placement, strings.Join(placements, ", "))
	case !slices.Contains(shuffles, r.Shuffle):
		return session.Refuse("--shuffle %q: want one of %s", r.Shuffle, strings.Join(shuffles, ", "))
	case len(r.Hops) > 0 && slices.Min(r.Hops) < 0:
		return session.Refuse("--hops %d: must not be negative", slices.Min(r.Hops))
	case !(r.LearningRate > 0 && r.LearningRate <= math.MaxFloat64):
		return session.Refuse("--lr %v: must be finite and above 0", r.LearningRate)
	case r.ChunkRows > 1 && r.Shuffle == placement.RR:
		return session.Refuse("--chunk-rows %d with --shuffle rr: rr reshuffles single rows (use --shuffle chunk)",
			r.ChunkRows)
	case r.ChunkRows > 0 && r.Shuffle == placement.Auto:
		r.Shuffle = placement.CR
	}
	for _, c := range []struct {
		flag         string
		value, least float64
	}{
		{"batch", float64(r.BatchRows), 1}, {"epochs", float64(r.Epochs), 1}, {"weight-decay", r.WeightDecay, 0},
		{"eval-every", float64(r.EvalEvery), 0}, {"warm-up", r.WarmUp, 0}, {"clip-norm", r.ClipNorm, 0},
		{"patience", float64(r.Patience), 0}, {"chunk-rows", float64(r.ChunkRows), 0},
	} {
		if !(c.value >= c.least && c.value <= math.MaxFloat64) {
			return session.Refuse("--%s %v: must be at least %v", c.flag, c.value, c.least)
		}
	}
	return nil
}

// Plan decides the model and the rows to train it on.
func (r *Request) Plan(ctx context.Context, dir *format.Dir, m session.Machine) (spec trainer.Spec,
	part session.Partition, err error) {
	manifest := &dir.Manifest
	target, columns := TargetOf(manifest)
	if columns == 0 {
		return spec, part, session.Refuse("%s has no labels to train on", r.Input)
	}
	matrices, layout, relations := TypedShape(dir)
	var bare map[string]int
	if dir.Typed != nil {
		bare, err = bareTypes(dir.Typed), checkTyped(r.Input, dir.Typed)
	} else if matrices, err = trainer.Matrices(r.Model, matrices, r.Operators, r.Hops); err != nil {
		err = session.Refuse("%s: %s", r.Input, err)
	}
	if err != nil {
		return spec, part, err
	}
	spec = trainer.Spec{Model: r.Model, Matrices: matrices, Features: manifest.Features, Widths: layout.Widths,
		Relations: relations, Nodes: bare, Classes: columns, Target: target}
	if manifest.Kind == format.KindStore { // so that the configuration names them, whatever the store has later
		r.Operators, r.Hops = spec.Choice()
	}
	if r.Split < 0 && r.SplitsFile == "" {
		r.Split = manifest.Split
	}
	r.Split = max(r.Split, 0)
	if part, err = session.OpenPartition(ctx, dir, r.Split, r.SplitsFile, m.Budget); err != nil {
		return spec, part, err
	}
	rows := session.CountRows(layout, part.Train)
	switch {
	case rows == 0 && part.Scattered():
		return spec, part, session.Refuse("%s has no training rows in that split", r.Input)
	case rows == 0:
		return spec, part, session.Refuse("%s has no training rows: its graph came without a split that has any "+
			"(give one by --splits FILE)", r.Input)
	}
	if spec.Settings, err = r.ModelValues(rows); err == nil {
		err = checkFeatures(r.Input, spec)
	}
	return spec, part, err
}

// ModelValues are the settings of the model: the given ones, else its defaults for trainRows training rows.
func (r *Request) ModelValues(trainRows int64) (trainer.Values, error) {
	defaults, err := trainer.Defaults(r.Model, trainRows)
	if err != nil {
		return nil, err
	}
	maps.Copy(defaults.Values, r.Values)
	return defaults.Values, nil
}

// Resolve sets what was not given: the matrices, the rows, settings of the model, and what follows from labels and
// numbers of rows. It returns the options to open the data by.
func (r *Request) Resolve(ctx context.Context, dir *format.Dir, m session.Machine, seed uint64) (o Options, err error) {
	isGraph := dir.Manifest.Kind == format.KindGraph
	if isGraph {
		if err := r.Sampling.Check(); err != nil {
			return o, err
		}
		if err := r.Schedule.Check(); err != nil {
			return o, err
		}
	}
	spec, part, err := r.Plan(ctx, dir, m)
	if err != nil {
		return o, err
	}
	normalized, err := spec.Normalized()
	if err != nil {
		return o, err
	}
	clear(r.Values) // flags point to the map
	maps.Copy(r.Values, normalized.Settings)
	layout := dir.Layout()
	trainRows, validRows := session.CountRows(layout, part.Train), session.CountRows(layout, part.Valid)
	if err := r.FillDefaults(trainRows); err != nil {
		return o, err
	}
	if r.BatchPerDevice > 0 {
		if !r.Default["batch"] {
			return o, session.Refuse("--batch %d with --batch-per-device %d: give one of them", r.BatchRows,
				r.BatchPerDevice)
		}
		r.BatchRows = r.BatchPerDevice * m.Devices.Count
	}
	r.EvalEvery = cmp.Or(r.EvalEvery, trainer.DefaultEvalEvery(trainRows, validRows, r.Epochs))
	if r.Labels, err = session.CountLabels(ctx, dir, part.Parts()[:3]); err != nil {
		return o, err
	}
	if r.Labels[0].Labelled == 0 {
		return o, session.Refuse("0 of the %s of %s have a label: nothing can be learnt (choose another split by "+
			"--split or --splits FILE, or import with labels)",
			units.Count(trainRows, "training row"), r.Input)
	}
	if r.ClassWeights, err = r.classWeights(spec); err != nil {
		return o, err
	}
	r.Seed = seed
	if r.Options, err = r.Options.Normalized(normalized); err != nil {
		return o, err
	}
	if isGraph {
		if r.Sampler == FullSampler && r.Default["batch"] && r.BatchPerDevice == 0 {
			r.BatchRows = int(trainRows)
		}
		if err := r.FillFanouts(int(r.Values["layers"])); err != nil {
			return o, err
		}
	}
	return r.OptionsFor(m, &dir.Manifest, spec, part)
}

// OptionsFor are the options to open data by, for a model and rows that Plan has chosen.
func (r *Request) OptionsFor(m session.Machine, manifest *format.Manifest, spec trainer.Spec,
	part session.Partition) (Options, error) {
	held, err := r.held(manifest, spec)
	return Options{Training: r.Training, Machine: m, Spec: spec, Held: held, Train: true, Part: part}, err
}

// classWeights are the weights of classes in the loss, nil if there are none.
func (r *Request) classWeights(spec trainer.Spec) (weights []float64, err error) {
	if r.Weights == "" {
		return nil, nil
	}
	if spec.Target != trainer.ClassTarget {
		return nil, session.Refuse("--class-weights %s: the labels of %s are not classes", r.Weights, r.Input)
	}
	rows := r.Labels[0].Classes
	if r.Weights == BalancedWeights {
		return trainer.BalancedWeights(rows), nil
	}
	for _, text := range strings.Split(r.Weights, ",") {
		w, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return nil, session.Refuse("--class-weights %s: want numbers separated by commas, or %s", r.Weights,
				BalancedWeights)
		}
		weights = append(weights, w)
	}
	counted := int64(0)
	for class, n := range rows {
		if class < len(weights) && float32(weights[class]) != 0 {
			counted += n
		}
	}
	if counted == 0 && len(weights) == len(rows) {
		return nil, session.Refuse("--class-weights %s: 0 of the %s of %s are in a class with a weight above 0: "+
			"nothing can be learnt",
			r.Weights, units.Count(r.Labels[0].Labelled, "labelled training row"), r.Input)
	}
	return weights, nil
}

// held is the host memory of a training beside its input.
func (r *Request) held(m *format.Manifest, spec trainer.Spec) (held need.Terms, err error) {
	if r.SplitsFile != "" {
		held = append(held, need.OnHeap("splits of a file", m.Nodes))
	}
	if r.Saves {
		parameters, err := spec.Parameters()
		if err != nil {
			return nil, err
		}
		held = append(held, checkpoint.Need(m.Rows, parameters)...)
	}
	return append(held, MetricNeed(r.Metric, m.Rows, spec)), nil
}

// MetricNeed is the host memory that a metric keeps for rows. ROC-AUC keeps 8 bytes for each row and label,
// in a list that grows by copying, and a copy while the lists of sets of rows are joined.
func MetricNeed(metric string, rows int64, spec trainer.Spec) need.Term {
	switch {
	case metric != "roc-auc":
		rows = 0
	case spec.Target == trainer.LabelsTarget:
		rows *= int64(spec.Classes)
	}
	return need.OnHeap("metric", 24*rows)
}

// TargetOf is the kind of labels of an input, and their columns; 0: the input has no labels.
func TargetOf(m *format.Manifest) (target trainer.Target, columns int) {
	switch {
	case m.LabelValues:
		return trainer.ValuesTarget, m.Labels
	case m.Labels > 1:
		return trainer.LabelsTarget, m.Labels
	}
	return trainer.ClassTarget, m.Classes
}

// Training says how a model is trained, and where its input lies.
type Training struct {
	trainer.Settings
	Placement string // placement.Auto, Device, Host or Storage
	Shuffle   string // of a store: placement.Auto, RR or CR
	ChunkRows int    // of a store
	// BatchPerDevice is BatchRows / devices if the user gave it; else 0.
	BatchPerDevice int
	Sampling                // of a graph
	Schedule       Schedule // of a graph
	NoTest         bool     // the test rows are not read
}

// Options say what is trained or applied, and on what.
type Options struct {
	Training // where rows are only evaluated, its Placement alone counts
	Machine  session.Machine
	Stages   host.Stages // of an emulated machine: how long the stages of a batch take
	Spec     trainer.Spec
	Held     need.Terms // memory that the caller takes beside
	Mapped   bool       // the topology of a graph is mapped from disk, not loaded
	Scratch  string     // folder for layers of all nodes that do not fit into memory; "": none
	Train    bool       // false: rows are only evaluated, in their order
	Part     session.Partition
}

// MaxWorkers is more threads than machines have, MostBuffers more batches than it is of any use to prepare ahead.
const (
	MaxWorkers  = 4096
	MostBuffers = 1000
)

// Samplers that options treat in another way than others.
const (
	FullSampler     = "full"     // takes all in-neighbours
	LocalitySampler = "locality" // prefers cached nodes
)

// Sampling says how the batches of a training on a graph are sampled. 0 and "" are defaults.
type Sampling struct {
	Sampler string // one of sampling.Names
	Fanouts []int
	Cache   string  // of rows of features, POLICY:SIZE
	Bias    float64 // of LocalitySampler: how many times as likely cached nodes are
	Debias  bool    // of LocalitySampler: estimates without bias
	Replace bool    // draw with replacement
	Workers int     // threads that sample
	Buffers int     // batches on the device
	// Partitions of the nodes; what is sampled for a node is of its own one. 0: all nodes are in one.
	Partitions int
	// PartitionFile is a .npy file [n] with the part of each node, instead; "": there is none.
	PartitionFile string
}

// divides tells that there is more than one partition.
func (s *Sampling) divides() bool { return s.Partitions > 1 || s.PartitionFile != "" }

// Check refuses what cannot be, whatever the graph. It sets the default sampler.
func (s *Sampling) Check() error {
	if s.Sampler == "" {
		s.Sampler = "neighbor"
	}
	if !slices.Contains(sampling.Names(), s.Sampler) {
		return session.Refuse("--sampler %q: want one of %s", s.Sampler, strings.Join(sampling.Names(), ", "))
	}
	if s.Cache != "" {
		if _, err := cache.Parse(s.Cache); err != nil {
			return session.Refuse("--cache: %s", err)
		}
	}
	switch {
	case s.Sampler == LocalitySampler && s.Bias == 0:
		return session.Refuse("--sampler locality prefers cached nodes: give --bias, such as 4 (1: no preference)")
	case s.Sampler != LocalitySampler && s.Bias != 0:
		return session.Refuse("--bias: sampler %s ignores the cache (use --sampler locality)", s.Sampler)
	case s.Sampler != LocalitySampler && s.Debias:
		return session.Refuse("--debias: sampler %s ignores the cache (use --sampler locality)", s.Sampler)
	case s.Replace && s.TakesAllEdges():
		return session.Refuse("--replace: --sampler %s takes all edges of the nodes that it has chosen", s.Sampler)
	case s.Partitions > 0 && s.PartitionFile != "":
		return session.Refuse("--partitions with --partition-file: the file says how many there are (leave out one)")
	}
	return nil
}

// TakesAllEdges tells that the sampler has no fanouts.
func (s *Sampling) TakesAllEdges() bool {
	return s.Sampler == FullSampler || sampling.ChoosesSeeds(s.Sampler)
}

// FillFanouts sets the default fanouts of a model with layers. It refuses a number of fanouts that is not layers.
func (s *Sampling) FillFanouts(layers int) error {
	switch {
	case s.TakesAllEdges() && len(s.Fanouts) > 0:
		return session.Refuse("--fanout: --sampler %s takes all edges of the nodes that it has chosen", s.Sampler)
	case s.TakesAllEdges():
		return nil
	case len(s.Fanouts) == 0:
		for i := range layers {
			s.Fanouts = append(s.Fanouts, max(5, 15-5*i))
		}
	case len(s.Fanouts) != layers:
		return session.Refuse("--fanout has %d numbers for %d layers: give one for each (or another --layers)",
			len(s.Fanouts), layers)
	}
	return nil
}

// Schedule says who prepares the batches of a graph, and when.
type Schedule struct {
	Name     string  // one of ScheduleNames; "": the processor, each stage as fast as it can
	CPUShare float64 // of the batches, by the schedule mixed; < 0: the best
	// ProfileBatches is how many batches of each route are measured before a schedule is planned (MorphGL's k); 0: 10.
	ProfileBatches int
	// For the schedule multi-queue. 0: the best by measurement.
	Queue     int // batches that wait for each device on the host, and on the device
	Gradients int // batches whose gradients wait on each device
	SyncEvery int // batches from one synchronisation of devices to the next
	// Updates is when devices make the steps of gradients that wait: Planned, which "" is, or OnArrival.
	Updates string
}

// The values of Schedule.Updates.
const (
	Planned   = "planned"
	OnArrival = "arrival"
)

// ScheduleNames are the values of Schedule.Name.
func ScheduleNames() []string { return append(scheduler.Names(), scheduler.MultiQueue) }

// mostProfiled is more batches than tell anything new of their mean.
const mostProfiled = 1 << 20

// maxSyncEvery is more batches than epochs have.
const maxSyncEvery = 1 << 30

// Check refuses what cannot be, whatever the graph.
func (s *Schedule) Check() error {
	queued := s.Name == scheduler.MultiQueue
	switch {
	case s.CPUShare > 1 || math.IsNaN(s.CPUShare) || s.CPUShare < 0 && s.CPUShare != -1:
		return session.Refuse("--cpu-share %v: want a share from 0 to 1", s.CPUShare)
	case s.CPUShare != -1 && s.Name != "mixed":
		return session.Refuse("--cpu-share %v: it is for --schedule mixed", s.CPUShare)
	case s.ProfileBatches > 0 && (s.Name == "" || queued):
		return session.Refuse("--profile-batches %d: it is for a --schedule other than %s", s.ProfileBatches,
			scheduler.MultiQueue)
	case s.ProfileBatches < 0 || s.ProfileBatches > mostProfiled:
		return session.Refuse("--profile-batches %d: want a number from 1 to %d", s.ProfileBatches, mostProfiled)
	case s.Queue < 0 || s.Queue > scheduler.MostQueue:
		return session.Refuse("--queue %d: want a number from 1 to %d", s.Queue, scheduler.MostQueue)
	case s.Gradients < 0 || s.Gradients > scheduler.MostQueue:
		return session.Refuse("--gradients %d: want a number from 1 to %d", s.Gradients, scheduler.MostQueue)
	case s.SyncEvery < 0 || s.SyncEvery > maxSyncEvery:
		return session.Refuse("--sync-every %d: want a number from 1 to %d", s.SyncEvery, maxSyncEvery)
	case !queued && (s.Queue+s.Gradients+s.SyncEvery > 0 || s.Updates == OnArrival):
		return session.Refuse("--queue, --gradients, --sync-every and --updates are for --schedule %s",
			scheduler.MultiQueue)
	}
	return nil
}

// GoOn keeps the steps of queues of a run that goes on; nil: there is none.
func (s *Schedule) GoOn(before *trainer.State) {
	if before == nil || before.Options.Queues == nil {
		return
	}
	q := before.Options.Queues
	s.SyncEvery, s.Gradients, s.Updates = q.Period, q.Lag+1, Planned
	if q.OnArrival {
		s.Updates = OnArrival
	}
}

// IsOff tells that there is nothing to schedule on a device: by the schedule auto, where the device is the processor.
func (s *Schedule) IsOff(info gds.Info) bool { return s.Name == scheduler.Auto && info.Unified }

// checkTogether refuses a schedule that contradicts how batches are sampled, or the machine.
func (o *Options) checkTogether(allNodes bool) error {
	switch name := o.Schedule.Name; {
	case name == scheduler.MultiQueue && o.Sampling.Buffers > 0:
		return session.Refuse("--buffers: with --schedule %s batches wait in queues (give --queue)",
			scheduler.MultiQueue)
	case name == "" && o.Stages.Paced() && allNodes:
		return session.Refuse("--emulate gives durations of stages of batches: every batch is all nodes (give --batch, " +
			"or another --sampler)")
	case o.Sampling.divides() && allNodes:
		return session.Refuse("--partitions, --partition-file: every batch is all nodes (give --batch, or another " +
			"--sampler)")
	case name != "" && allNodes:
		return session.Refuse("--schedule %s: every batch is all nodes, so there is none to prepare (give --batch, "+
			"or another --sampler)", name)
	}
	return nil
}

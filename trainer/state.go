package trainer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/jsontext"
	"github.com/hopfeed/hopfeed/internal/safetensors"
)

// State is a run of training between two batches: with it, Resume goes on as if the run had not been stopped. Rows and
// their order are not in it: the same Epochers give them again.
type State struct {
	Spec      Spec    `json:"-"` // in the header of the encoding: see stateHeader
	Options   Options `json:"options"`
	TrainRows int64   `json:"train_rows"`
	// TrainLabelled is how many rows have a label, which the loss is a mean over; 0, of older versions: all.
	TrainLabelled int64        `json:"train_labelled,omitempty"`
	Inputs        []InputScale `json:"-"`

	Steps   int   `json:"steps"`   // that were made
	Epoch   Epoch `json:"epoch"`   // the one that goes on, as far as it is known
	Batch   int   `json:"batch"`   // the next of that epoch
	Rows    int64 `json:"rows"`    // of the batches before it
	Trained bool  `json:"trained"` // there is no next batch: the epoch has yet to be validated

	History      []Epoch            `json:"history"` // epochs that have ended
	Best         int                `json:"best"`    // place in History of the selected one
	StageSeconds map[string]float64 `json:"stage_seconds"`

	Losses         []float32   `json:"-"` // sums over Rows, one for each device
	Parameters     []float32   `json:"-"`
	BestParameters []float32   `json:"-"`
	Moments        [][]float32 `json:"-"` // of the optimizer
}

// finished tells whether no epoch is left.
func (s *State) finished() bool {
	ended := len(s.History)
	if ended == 0 {
		return false
	}
	patience := s.Options.Patience
	return ended >= s.Options.Epochs || patience > 0 && s.History[ended-1].Valid != nil && ended-1-s.Best >= patience
}

// clone copies the state, but not its vectors.
func (s State) clone() State {
	s.History, s.StageSeconds = slices.Clone(s.History), maps.Clone(s.StageSeconds)
	s.Epoch.StepSeconds = maps.Clone(s.Epoch.StepSeconds)
	return s
}

func (s *State) addStageTime(stage string, start time.Time) float64 {
	seconds := time.Since(start).Seconds()
	s.StageSeconds[stage] += seconds
	return seconds
}

// State copies the state of a run, also from its devices. It must not be called while Train trains, but by its report.
func (f *Fitting) State() (*State, error) {
	s := f.state.clone()
	s.Losses = make([]float32, len(f.ranks))
	err := f.eachRank(func(n *network) error {
		loss, err := n.readLoss(context.Background())
		s.Losses[n.rank] = loss
		return err
	})
	if err != nil {
		return nil, err
	}
	n := f.ranks[0]
	s.Moments = make([][]float32, len(n.params.moments))
	for i, v := range n.params.vectors() {
		if *s.vectors()[i].values, err = n.download(v); err != nil {
			return nil, f.rankError(0, err)
		}
	}
	return &s, nil
}

// vectors are the device vectors of a state; State.vectors are the same on the host.
func (p *parameters) vectors() []gds.Tensor {
	return append([]gds.Tensor{p.value, p.best}, p.moments...)
}

// namedVector is one of the vectors of a state, and its name in the encoding.
type namedVector struct {
	name   string
	values *[]float32
}

func (s *State) vectors() []namedVector {
	all := []namedVector{{"parameters", &s.Parameters}, {"best_parameters", &s.BestParameters}}
	for i := range s.Moments {
		all = append(all, namedVector{fmt.Sprintf("moment-%d", i+1), &s.Moments[i]})
	}
	return all
}

// allVectors are the vectors of a state in the order of its encoding.
func (s *State) allVectors() []namedVector {
	all := []namedVector{{"losses", &s.Losses}}
	for i := range s.Inputs {
		all = append(all, namedVector{fmt.Sprintf("mean-%d", i), &s.Inputs[i].Mean},
			namedVector{fmt.Sprintf("factor-%d", i), &s.Inputs[i].Factor})
	}
	return append(all, s.vectors()...)
}

// Resume continues a run from its state, which it copies. The ranks must have the same rows in the same order as in the
// run. If their number differs, floating-point sums and dropped elements are not the same bit for bit.
func Resume(ranks []Rank, s *State) (*Fitting, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	f, err := newFitting(ranks, s.Spec, s.Options)
	if err != nil {
		return nil, err
	}
	if err := f.restore(s); err != nil {
		return f.failed(err)
	}
	return f, nil
}

func (f *Fitting) restore(s *State) error {
	rows, labelled := s.TrainRows, cmp.Or(s.TrainLabelled, s.TrainRows)
	err := cmp.Or(
		must(rows == f.state.TrainRows, "the run was on %d training rows, but there are %d", rows, f.state.TrainRows),
		must(labelled == f.state.TrainLabelled, "the run divided its loss by %d rows, but %d training rows have a "+
			"label (start over)", labelled, f.state.TrainLabelled))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	losses := make([]float32, len(f.ranks))
	for i, loss := range s.Losses {
		losses[i%len(losses)] += loss
	}
	f.state = s.clone()
	return f.eachRank(func(n *network) error {
		if err := n.setInputs(s.Inputs); err != nil {
			return err
		}
		for i, v := range n.params.vectors() {
			if err := n.upload(v, *s.vectors()[i].values); err != nil {
				return err
			}
		}
		return n.upload(n.lossSum, losses[n.rank:n.rank+1])
	})
}

// check returns an error if something in a state contradicts the rest.
func (s *State) check() error {
	spec, declared, err := s.Spec.validate()
	if err != nil {
		return err
	}
	_, t, err := s.Options.validate(spec)
	if err != nil {
		return err
	}
	err = cmp.Or(
		must(len(s.Inputs) == len(spec.Matrices) && len(s.Moments) == t.optimizer.moments && len(s.Losses) > 0 &&
			s.StageSeconds != nil,
			"a state of %d matrices, %d moments and %d devices for a model of %d and an optimizer of %d",
			len(s.Inputs), len(s.Moments), len(s.Losses), len(spec.Matrices), t.optimizer.moments),
		must(s.Steps >= 0 && s.Batch >= 0 && s.Rows >= 0 && s.Epoch.Number == len(s.History)+1 && s.Best >= 0 &&
			s.Best <= max(0, len(s.History)-1),
			"a state at epoch %d, batch %d after %d steps, with %d epochs, the best of them number %d",
			s.Epoch.Number, s.Batch, s.Steps, len(s.History), s.Best+1))
	for i, in := range s.Inputs {
		if err == nil {
			err = must(len(in.Mean) == spec.Width(i) && len(in.Factor) == spec.Width(i),
				"%d means and %d factors for %d columns", len(in.Mean), len(in.Factor), spec.Width(i))
		}
	}
	for _, v := range s.vectors() {
		err = cmp.Or(err, must(len(*v.values) == declared.params.count, "%d values for %d parameters", len(*v.values),
			declared.params.count))
	}
	return err
}

const (
	stateKind    = "run-state"
	stateVersion = 2
	stateKey     = "state" // of the metadata
)

// stateHeader is in the metadata of an encoded state, as JSON.
type stateHeader struct {
	Kind   string    `json:"kind"`
	Format int       `json:"format"`
	Model  SavedSpec `json:"model"`
	State  *State    `json:"state"`
}

// Encode returns the state as the bytes of a safetensors file: its vectors, flat, and the rest as
// metadata. It has no checksum.
func (s *State) Encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	scales := make([]float32, len(s.Inputs))
	for i, in := range s.Inputs {
		scales[i] = in.Scale
	}
	header, err := json.Marshal(stateHeader{stateKind, stateVersion, s.Spec.Saved(scales), s})
	if err != nil {
		return nil, err
	}
	var tensors []safetensors.Tensor
	for _, v := range s.allVectors() {
		tensors = append(tensors, safetensors.Tensor{Name: v.name, Shape: []int{len(*v.values)}, Data: *v.values})
	}
	return safetensors.Encode(map[string]string{stateKey: string(header)}, tensors)
}

// DecodeState decodes the bytes of State.Encode.
func DecodeState(data []byte) (*State, error) {
	metadata, tensors, err := safetensors.Decode(data)
	if err != nil {
		return nil, err
	}
	var h stateHeader
	if err := jsontext.Decode([]byte(metadata[stateKey]), &h); err != nil {
		return nil, fmt.Errorf("corrupt: %w", err)
	}
	if h.Kind != stateKind || h.Format != stateVersion {
		return nil, fmt.Errorf("it is a %q of format version %d; this program reads %q, version %d", h.Kind, h.Format,
			stateKind, stateVersion)
	}
	s := h.State
	if s == nil {
		return nil, errors.New("corrupt: it has no state")
	}
	var scales []float32
	if s.Spec, scales, err = h.Model.Spec(); err != nil {
		return nil, err
	}
	t, err := s.Options.task(s.Spec, true)
	if err != nil {
		return nil, err
	}
	s.Moments = make([][]float32, t.optimizer.moments)
	s.Inputs = make([]InputScale, len(scales))
	for i, scale := range scales {
		s.Inputs[i].Scale = scale
	}
	all := s.allVectors()
	if len(tensors) != len(all) {
		return nil, fmt.Errorf("corrupt: %d vectors instead of %d", len(tensors), len(all))
	}
	for i, v := range all {
		if tensors[i].Name != v.name {
			return nil, fmt.Errorf("corrupt: %q where %q should be", tensors[i].Name, v.name)
		}
		*v.values = tensors[i].Data
	}
	return s, s.check()
}

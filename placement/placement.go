// Package placement decides where the input of training lives and how it is
// shuffled (preprop-gnn section 5), and says why in words.
package placement

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
)

// ErrContradiction is returned when what the user asked for excludes itself.
var ErrContradiction = errors.New("contradictory options")

// Placements, shuffles, and the choice left to Choose.
const (
	Auto = "auto"

	Device  = "device"
	Host    = "host"
	Storage = "storage"

	RR = "rr"
	CR = "chunk"
)

// Facts are what there is to place things on.
type Facts struct {
	Device     gds.Info
	DeviceFree units.Bytes // of the device's memory
	Budget     units.Bytes // host memory that the run may use
	BudgetBy   string      // what set the budget
}

// Needs are what has to be placed.
type Needs struct {
	Input units.Bytes // the matrices that the model reads, as stored, over all rows that will be read
	Work  units.Bytes // beside them on the device, wherever they live: batch buffers, model
	// Chunks are held in host memory, beside Work, where the input is read from storage.
	Chunks units.Bytes
	// ScatteredRows tells that the rows to be read do not lie together, so that
	// reading them chunk by chunk is out of the question.
	ScatteredRows bool
	// CutChunks tells that what is shuffled together is not whole chunks of the store.
	CutChunks bool
}

// Override is what the user asked for: Auto where nothing.
type Override struct {
	Placement string
	Shuffle   string // "" where nothing is to be shuffled
}

// Decision is where the input lives and how it is shuffled, with the reasons in
// the order in which they were found.
type Decision struct {
	Placement string
	Shuffle   string
	Reasons   []string
}

// Choose takes device memory first, then host memory, both with row reshuffling,
// then storage with chunk reshuffling (preprop-gnn section 5). What the user
// asked for wins where it is possible. A demand that does not fit is
// machine.ErrDoesNotFit, one that excludes itself ErrContradiction.
func Choose(f Facts, n Needs, o Override) (Decision, error) {
	var d Decision
	because := func(format string, args ...any) { d.Reasons = append(d.Reasons, fmt.Sprintf(format, args...)) }

	if o.Shuffle == RR && o.Placement == Storage {
		return d, fmt.Errorf("%w: storage is read in whole chunks, so rows cannot be shuffled one by one (use --shuffle chunk, or --placement host)", ErrContradiction)
	}
	if n.ScatteredRows && (o.Placement == Storage || o.Shuffle == CR) {
		return d, fmt.Errorf("%w: the rows of this split are scattered over the chunks of the store, so they cannot be read or shuffled by chunk (propagate again with that --split)", ErrContradiction)
	}

	if n.CutChunks && o.Placement == Storage {
		return d, fmt.Errorf("%w: storage is read in whole chunks, so --chunk-rows must be a multiple of the store's (see inspect)", ErrContradiction)
	}

	obstacles := obstacles(f, n, o)
	if o.Placement != Auto {
		if why := obstacles[o.Placement]; why != "" {
			return d, fmt.Errorf("--placement %s %w: %s", o.Placement, machine.ErrDoesNotFit, why)
		}
		d.Placement = o.Placement
		because("placement %s was asked for", o.Placement)
	} else {
		for _, d.Placement = range []string{Device, Host, Storage, ""} {
			why := obstacles[d.Placement]
			if why == "" {
				break
			}
			because("not %s: %s", d.Placement, why)
		}
		switch d.Placement {
		case Device:
			because("device: the input (%s) fits its memory", n.Input)
			if f.Device.Unified {
				because("device and host memory are the same here, so the input is held once")
			}
		case Host:
			because("host: the input (%s) fits the memory budget of %s", n.Input, f.Budget)
		case Storage:
			because("storage: chunks are read as they are needed")
		default:
			return d, fmt.Errorf("the input of training %w: %s", machine.ErrDoesNotFit, strings.Join(d.Reasons, "; "))
		}
	}

	switch {
	case o.Shuffle == "":
	case o.Shuffle != Auto:
		d.Shuffle = o.Shuffle
		because("shuffle %s was asked for", o.Shuffle)
	case d.Placement == Storage:
		d.Shuffle = CR
		because("shuffled by chunk, so that storage is read in long runs")
	default:
		d.Shuffle = RR
		because("shuffled by row, which memory gives at full speed")
	}
	return d, nil
}

// obstacles says, for each placement that is impossible, why.
func obstacles(f Facts, n Needs, o Override) map[string]string {
	free, by := f.DeviceFree, fmt.Sprintf("is free on device %q", f.Device.Name)
	if f.Device.Unified && f.Budget <= free {
		free, by = f.Budget, "is the memory budget, by "+f.BudgetBy
	}
	out := map[string]string{}
	if n.Input+n.Work > free {
		out[Device] = fmt.Sprintf("the input (%s) and what works on it (%s) exceed the %s that %s", n.Input, n.Work, free, by)
	}
	tooMuchWork := ""
	if n.Work > free {
		tooMuchWork = fmt.Sprintf("batches and model alone (%s) exceed the %s that %s", n.Work, free, by)
	}
	switch {
	case f.Device.Unified && out[Device] != "":
		out[Host] = "host memory is the device's memory here"
	case tooMuchWork != "":
		out[Host] = tooMuchWork
	case n.Input > f.Budget:
		out[Host] = fmt.Sprintf("the input (%s) exceeds the memory budget of %s, by %s", n.Input, f.Budget, f.BudgetBy)
	}
	switch {
	case o.Shuffle == RR:
		out[Storage] = "rows shall be shuffled one by one, which storage cannot do"
	case n.ScatteredRows:
		out[Storage] = "the rows of this split are scattered over the chunks of the store"
	case n.CutChunks:
		out[Storage] = "what shall be shuffled together is not whole chunks of the store"
	case tooMuchWork != "":
		out[Storage] = tooMuchWork
	case f.Device.Unified && n.Work+n.Chunks > free:
		out[Storage] = fmt.Sprintf("batches and model (%s) and chunks being read (%s) exceed the %s that %s", n.Work, n.Chunks, free, by)
	case n.Chunks > f.Budget:
		out[Storage] = fmt.Sprintf("chunks being read (%s) exceed the memory budget of %s, by %s", n.Chunks, f.Budget, f.BudgetBy)
	}
	return out
}

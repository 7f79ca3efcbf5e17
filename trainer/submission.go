package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/hopfeed/hopfeed/gds"
)

// submission decides how the operations of a step of training go to the device: one by one, or as one
// group (gds.Grouper), which costs the host less where a step has many small ones. It times both, in
// turn, over the first steps, and takes the group if steps take less time by it; results are the same.
// It is for a network that is alone: ranks meet in the middle of a step.
type submission struct {
	grouper gds.Grouper  // nil: one by one
	steps   int          // of the trial so far
	began   time.Time    // of the steps that are timed
	seconds [2][]float64 // of a step, one by one and by groups, in each round
	reason  string       // of the decision; "" before
}

const (
	trialWarmUp = 4 // steps, in which memory is allocated
	trialRounds = 3 // of each way in turn; their medians are compared
	trialSteps  = 8 // of a round, after one that is not timed
)

// worthGrouping is how much of a step's time one by one a step by a group may take.
const worthGrouping = 0.95

func newSubmission(stream gds.Stream) *submission {
	s := &submission{}
	s.grouper, _ = stream.(gds.Grouper)
	return s
}

// run enqueues a step, of a stream that has groups. An error of the stream is for whoever waits for it.
func (s *submission) run(stream gds.Stream, step func()) {
	if s.reason != "" {
		s.group(step)
		return
	}
	at := s.steps - trialWarmUp
	s.steps++
	if at < 0 {
		step()
		return
	}
	round, at := at/(trialSteps+1), at%(trialSteps+1)
	if at == 1 {
		_ = stream.Synchronize(context.Background())
		s.began = time.Now()
	}
	way := round % 2
	if way == 0 {
		step()
	} else {
		s.group(step)
	}
	if at < trialSteps {
		return
	}
	_ = stream.Synchronize(context.Background())
	if s.grouper == nil {
		return
	}
	s.seconds[way] = append(s.seconds[way], time.Since(s.began).Seconds()/trialSteps)
	if round+1 == 2*trialRounds {
		s.decide()
	}
}

// decide ends the trial.
func (s *submission) decide() {
	single, grouped := median(s.seconds[0]), median(s.seconds[1])
	how := "as graphs"
	if grouped > worthGrouping*single {
		how, s.grouper = "one by one", nil
	}
	s.reason = fmt.Sprintf("operations are submitted %s: a step took %.3g ms one by one, and %.3g ms as a graph", how,
		1000*single, 1000*grouped)
}

// group enqueues a step as a group or, where that cannot be, operation by operation from here on.
func (s *submission) group(step func()) {
	err := s.grouper.BeginGroup()
	if err == nil {
		step()
		err = s.grouper.EndGroup()
	}
	if err != nil { // and nothing of it runs
		s.grouper, s.reason = nil, fmt.Sprintf("operations are submitted one by one: %v", err)
		step()
	}
}

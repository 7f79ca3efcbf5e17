package sampling

import (
	"fmt"
	"time"

	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// Queues are those of the batches of a set, one on the host and one on the device (MQ-GNN, §IV).
type Queues struct {
	// Length is how many batches each has room for: of those that are sampled and have not moved, and of
	// those on the device, or on their way, that are not used yet. The loader must have been opened for
	// QueueBuffers(Length).
	Length int
	// Pace is how long stages take at least, on a machine that is emulated: Sample a batch by a worker, and
	// Move its way to the device. The other fields do not count.
	Pace Pace
	// Prepared, unless it is nil, gets how long a batch took to be sampled, and to be gathered and moved. One
	// goroutine at a time calls it.
	Prepared func(sample, move time.Duration)
}

// QueueBuffers is how many batches of queues of a length there are on a device: one is used.
func QueueBuffers(length int) int { return length + 1 }

// SetQueues makes batches of the set wait in queues of a length; nil: as many as the loader has room for.
func (s *Set) SetQueues(q *Queues) error {
	switch {
	case q == nil:
	case q.Length < 1 || QueueBuffers(q.Length) > len(s.l.buffers):
		return fmt.Errorf("%w: queues of %d batches for a loader of %d", ErrOptions, q.Length, len(s.l.buffers))
	case s.schedule != nil || s.onDevice != nil:
		return fmt.Errorf("%w: queues of batches that a schedule, or the device, prepares", ErrOptions)
	}
	s.queues = q
	return nil
}

// beginQueues takes jobs out of use, for the epoch that begins.
func (l *Loader) beginQueues(length int) {
	for len(l.jobs) > 2*length {
		<-l.jobs
	}
}

// sampleTimed is sample, in the time that it takes at least.
func (s *Set) sampleTimed(w *pipeline.Worker, sampler Sampler, j *job) error {
	start := time.Now()
	err := s.sample(w.Context(), sampler, j)
	if s.queues == nil || err != nil {
		return err
	}
	if pace := s.queues.Pace.Sample; pace > 0 {
		err = w.Wait(pipeline.Until(start.Add(pace)))
	}
	j.sampled = time.Since(start)
	return err
}

// gatherTimed is gather. The time begins when there is a buffer.
func (s *Set) gatherTimed(w *pipeline.Worker, j *job) error {
	j.moving = time.Now()
	if err := s.gather(w, j); err != nil {
		return err
	}
	j.moving = j.moving.Add(j.waitedForRoom)
	return nil
}

// moved ends the stage transfer.
func (s *Set) moved(w *pipeline.Worker, j *job) error {
	if s.queues == nil {
		return nil
	}
	if pace := s.queues.Pace.Move; pace > 0 {
		if err := w.Wait(pipeline.Until(j.moving.Add(pace))); err != nil {
			return err
		}
	}
	if s.queues.Prepared != nil {
		s.queues.Prepared(j.sampled, time.Since(j.moving))
	}
	return nil
}

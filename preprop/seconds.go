package preprop

import "strconv"

// secondsAttribute is the attribute of a store's directory that says how long propagation took: a number of seconds, and
// moreTime where that is not all. It is no part of the store, whose bytes do not depend on time.
const (
	secondsAttribute = "propagation-seconds"
	moreTime         = "+"
)

// recordTook records the time of a job that has published its store, or added to it. Where it cannot, nothing is lost but
// the figure.
func (s *jobContext) recordTook(r *Result) {
	t := Took{r.Seconds, r.Resumed || s.options.Shard.Count > 1}
	if s.existing != nil {
		before := TookOf(s.fsys, s.storeDir)
		t.Seconds, t.AtLeast = t.Seconds+before.Seconds, t.AtLeast || before.AtLeast || before.Seconds == 0
	}
	text := strconv.FormatFloat(t.Seconds, 'g', 6, 64)
	if t.AtLeast {
		text += moreTime
	}
	_ = s.fsys.SetAttribute(s.storeDir, secondsAttribute, text)
}

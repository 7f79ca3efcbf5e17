package preprop

import (
	"errors"

	"github.com/hopfeed/hopfeed/preprop/device"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Plan says how a job does its work within its memory; Device computes its products.
type (
	Plan   = plan.Plan
	Device = plan.Device
)

// CPU is the name of the processor among devices.
const CPU = plan.CPU

var (
	// ErrOptions is returned when options contradict each other or the graph.
	ErrOptions = errors.New("unusable options")
	// ErrInvalid is returned when a feature or a result is not finite, or too large for its type.
	ErrInvalid = product.ErrInvalid
	// ErrUnfinished is returned when a job ended early, and can go on when it is started again.
	ErrUnfinished = errors.New("finished work is saved: run the same command again to go on")
	// ErrMaxTime is returned when a job ended because Options.MaxTime was over.
	ErrMaxTime = engine.ErrMaxTime
	// ErrTooShort is returned, beside the reason why a job ended, when it ended before it could save anything:
	// started again with as much time, it would get no further.
	ErrTooShort = engine.ErrTooShort
	// ErrDevice is returned when the device that a job computes on fails. Finished work is saved, and the processor
	// can go on with it.
	ErrDevice = device.ErrDevice
	// ErrUnseen is returned by a shard that has finished its columns, and does not see the result files of columns
	// that another shard has recorded as finished.
	ErrUnseen = errors.New("files of finished columns are not visible")
)

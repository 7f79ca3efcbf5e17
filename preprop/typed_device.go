package preprop

import (
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// The device of a job on a typed graph is chosen once, by the time that the products of all steps take together on the
// processor. It is opened by the first step that runs on it, and stays open for the others. A step that does not fit
// on it runs on the processor.

// chooseDevice asks Options.Device for a device, and has the steps planned on it.
func (t *typedJob) chooseDevice(r *Result) error {
	choose, seconds := t.options.Device, 0.0
	if choose == nil {
		choose = func(float64) (*Device, error) { return &Device{Name: CPU, Reason: "no device was asked for"}, nil }
	}
	t.options.Device = func(step float64) (*Device, error) {
		seconds += step
		return &Device{Name: CPU}, nil
	}
	if err := t.planSteps(r); err != nil {
		return err
	}
	d, err := choose(seconds)
	if err != nil {
		return err
	}
	lent := *d
	if d.Open != nil {
		lent.IfItFits = true
		lent.Open = func() (_ gds.Device, err error) {
			if t.device == nil {
				if t.device, err = d.Open(); err != nil {
					t.device = nil
					return nil, err
				}
			}
			return lentDevice{t.device}, nil
		}
	}
	t.options.Device = func(float64) (*Device, error) { return &lent, nil }
	r.Plan.Device = &plan.DevicePlan{Name: d.Name, Reason: d.Reason}
	return nil
}

// lentDevice stays open when a step closes it.
type lentDevice struct{ gds.Device }

func (lentDevice) Close() error { return nil }

// sayDevices sets what computes each metapath, and what the device has for that at most.
func (t *typedJob) sayDevices(r *Result) {
	all, k := r.Plan.Device, 0
	all.Bytes, all.PinnedBytes = 0, 0
	for _, n := range t.order {
		d := t.computes[n]
		if d != nil {
			all.Bytes, all.PinnedBytes = max(all.Bytes, d.Bytes), max(all.PinnedBytes, d.PinnedBytes)
		}
		for range n.stored {
			m := &r.Metapaths[k]
			k++
			if m.Device, m.DeviceReason = "", ""; d == nil {
				continue
			}
			if m.Device = d.Name; d.Name != all.Name {
				m.DeviceReason = d.Reason
			}
		}
	}
}

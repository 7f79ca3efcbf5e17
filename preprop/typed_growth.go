package preprop

import (
	"cmp"
	"fmt"

	"github.com/hopfeed/hopfeed/preprop/operator"
)

// takeExisting sets options that were left out to what the existing store has.
func (t *typedJob) takeExisting(o *Options) error {
	d := t.existing
	if d == nil {
		return nil
	}
	m := &d.Manifest
	o.Rows, o.DType = cmp.Or(o.Rows, m.RowSet), cmp.Or(o.DType, d.Layout().DType)
	o.ChunkRows = cmp.Or(o.ChunkRows, m.ChunkRows)
	o.takeDefaulted(m)
	if err := o.takeNormalization(m); err != nil {
		return fmt.Errorf("%s: %w", t.storeDir, err)
	}
	return nil
}

// keepMetapaths adds the metapaths of the store that the job adds to.
func (t *typedJob) keepMetapaths(matrices *typedMatrices) error {
	if t.existing == nil || t.existing.Manifest.Input["graph"] != t.typed.Fingerprint {
		return nil // what differs is refused later
	}
	asked := matrices.stored()
	for _, one := range t.existing.Manifest.Operators {
		o, err := operator.Parse(one.Name)
		if err != nil {
			return err
		}
		if o.Name != t.normalize.Name {
			return fmt.Errorf("%s has %s: give --operator %s, or another directory", t.storeDir, one.Name, o.Name)
		}
		if o.Labels {
			continue
		}
		if _, err := matrices.add(o.Metapath); err != nil {
			return err
		}
		if !asked[o.Metapath] {
			t.beyond = append(t.beyond, one.Name)
		}
	}
	return nil
}

//go:build cuda && cgo && linux

package cuda

import (
	"errors"

	"gorgonia.org/cu"
)

// reachPeer lets copies between the memory of two devices go straight, the first time that there is
// one, if the machine can (over NVLink or PCIe). Else the driver copies through host memory.
func (d *Device) reachPeer(peer *Device) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.peers[peer.ordinal] {
		return nil
	}
	for _, way := range [][2]*Device{{d, peer}, {peer, d}} {
		from, to := way[0], way[1]
		can, err := from.device.CanAccessPeer(to.device)
		if err == nil && can != 0 {
			err = from.do(func() error { return to.context.EnablePeerAccess(0) })
		}
		if err != nil && !errors.Is(err, cu.PeerAccessAlreadyEnabled) {
			return d.errorf("reaching the memory of device %d: %w", peer.ordinal, err)
		}
	}
	if d.peers == nil {
		d.peers = make(map[int]bool)
	}
	d.peers[peer.ordinal] = true
	return nil
}

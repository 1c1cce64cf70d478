//go:build unix && !linux

package storm

import (
	"errors"
	"testing"
)

// disk cannot be created on a system without ext4.
type disk struct{ dir string }

func newDisk(*testing.T) (*disk, error) { return nil, errors.ErrUnsupported }

func (d *disk) cut() error { return errors.ErrUnsupported }

func (d *disk) settle() error { return errors.ErrUnsupported }

func (d *disk) keep(string) error { return errors.ErrUnsupported }

func (d *disk) restore() error { return errors.ErrUnsupported }

package telemetry

import "time"

// ReadEvery sets the minimum interval between reads of the database.
func (t *Telemetry) ReadEvery(d time.Duration) { t.look.every = d }

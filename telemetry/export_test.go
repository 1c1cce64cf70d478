package telemetry

import "time"

// ReadEvery has the database read more often than a scraper in production needs.
func (t *Telemetry) ReadEvery(d time.Duration) { t.look.every = d }

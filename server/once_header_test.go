package server_test

import "testing"

// Tasks of kind http always send an Idempotency-Key.
func TestATaskMaySendAKeyThatHasNoEffect(t *testing.T) {
	s := start(t)
	const pause = "/api/v1/queues/default/pause?create=true"
	s.do("POST", pause, nil, "Idempotency-Key", "k").problem(t, 400, "invalid_header")
	a := s.do("POST", pause, nil, "Idempotency-Key", "k", "Tusk-Task-Id", "t")
	if a.status >= 300 {
		t.Errorf("the request of a task is refused: %d %s", a.status, a.body)
	}
}

package mysql_test

import (
	"testing"

	"github.com/tuskqueue/tusk/store/storetest"
)

// A note that the server does not accept does not harm the worker, and does not hold up other notes.
func TestABeatCountsThoughANoteIsNotTaken(t *testing.T) {
	s := fresh(t)
	exec(t, s, `create trigger no_poison before insert on tusk_note for each row
		if new.body like '%poison%' then signal sqlstate '22001' set mysql_errno = 1406, message_text = 'injected'; end if`)
	storetest.NoteRefused(t, s, "poison")
}

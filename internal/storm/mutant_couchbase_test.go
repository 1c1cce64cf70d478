//go:build unix

package storm

// onCouchbase are bugs of the Couchbase engine. Those about pages, and about the order of a call, were found by
// storms of its prototype. Since then the sweep repairs their damage after a while, so they have to be found by tests
// in which nothing sweeps.
var onCouchbase = []planted{
	{mutant: mutant{name: "a page that was passed comes back", edits: []change{{"store/couchbase/line.go",
		"	if c, err = s.open(ctx, l); err != nil || c.Page <= n {\n",
		"	if c, err = s.open(ctx, l); err != nil || c.Page != 0 {\n"}},
		caught: "not the one that was enqueued last"}, in: "store/couchbase", test: "^TestAPageThatWasPassed"},
	{mutant: mutant{name: "a page goes though its cursor has not moved", edits: []change{{"store/couchbase/claim.go",
		"	if moved && to.Page != from.Page {\n", "	if to.Page != from.Page {\n"}},
		caught: "the page has gone"}, in: "store/couchbase", test: "^TestAPageStays"},
	{mutant: mutant{name: "a call's tasks with keys come after the others", edits: []change{{"store/couchbase/enqueue.go",
		"	inOrder(tasks, works)\n", ""}}, caught: "in order"}, in: "store/couchbase", test: "^TestACallKeepsItsOrder"},
	{mutant: mutant{name: "a pin is not durable", edits: []change{{"store/couchbase/decide.go",
		"	if ok, err := s.write(ctx, was); !ok || err != nil {\n",
		"	if was.cas != 0 {\n		ok, err := s.writeAt(ctx, was, 0)\n		return map[bool]*doc{true: was}[ok], err\n	}\n" +
			"	if ok, err := s.write(ctx, was); !ok || err != nil {\n"}},
		caught: "is lost|is left|completions|is refused|is (available|running|retryable)"},
		in: "store/couchbase", test: "^TestFailoverAtEachRequest$", env: "TUSK_TEST_LONG=1"},
	{mutant: mutant{name: "an end does not write the key", edits: []change{{"store/couchbase/work.go",
		"		if c.Before == nil || c.Before.Key == \"\" {\n", "		if c.Before == nil || c.Before.State == store.Running {\n"}},
		caught: "the rerun was"}, in: "store/couchbase", test: "^TestARerunOf"},
	{mutant: mutant{name: "a replacement does not write the key", edits: []change{{"store/couchbase/work.go",
		"		if c.Before == nil || c.Before.Key == \"\" {\n", "		if c.Before == nil || c.Before.State != store.Running {\n"}},
		caught: "the ended task was"}, in: "store/couchbase", test: "^TestAReplacementOf"},
	{mutant: mutant{name: "who was slow takes back what another has completed", edits: []change{{"store/couchbase/unit.go",
		"		if err != nil || is == nil && try > 0 { // it cannot be read\n", "		if err != nil || is != nil || try > 0 {\n"}},
		caught: "x is lost"}, in: "store/couchbase", test: "^TestAUnitThatIsCompleted"},
	{mutant: mutant{name: "an owner leaves what another has made as it is", edits: []change{{"store/couchbase/unit.go",
		"{ return s.make(ctx, made[round[i]]) }", "{ _, err := s.write(ctx, made[round[i]]); return err }"}},
		caught: "x is lost"}, in: "store/couchbase", test: "^TestAUnitThatTwo"},
	{mutant: mutant{name: "what is deleted can be made again", edits: []change{{"store/couchbase/decide.go",
		"		if !d.dirty || !d.header().Gone || m == nil {\n", "		if m != nil || m == nil {\n"},
		{"store/couchbase/grave.go", "const lateBy = 2 * time.Minute\n", "const lateBy = 0 * time.Minute\n"}},
		caught: "it has come back"}, in: "store/couchbase", test: "^TestATaskOfAnUndone"},
	{mutant: mutant{name: "a handle goes by its process's clock", edits: []change{{"store/couchbase/clock.go",
		"		s.learn(ctx)\n", ""}}, caught: "the time is"},
		in: "store/couchbase", test: "^TestTheClockIsLearnt|^TestNobodyGoes"},
	{mutant: mutant{name: "turns are seen out of order", edits: []change{{"store/couchbase/statement.go",
		"ScanConsistency: gocb.QueryScanConsistencyRequestPlus", "ScanConsistency: 0"}}, caught: "these wait"},
		in: "store/couchbase", test: "^TestTurnsKeepTheirOrder"},
	{mutant: mutant{name: "a task that has moved out is still in its sheet", edits: []change{{
		"store/couchbase/sheet.go", "		sh.lots[i] = lot{State: moved}\n", "		sh.lots[i] = lot{State: \"a\"}\n"}},
		caught: "the sheet is"}, in: "store/couchbase", test: "^TestASheetIsReadAs"},
	{mutant: mutant{name: "a call takes another's sheet for its own", edits: []change{{"store/couchbase/decide.go",
		"		taken[i] = is != nil && !is.sheetOf().covers(d.sheetOf())\n", "		taken[i] = is == nil && err == nil\n"}},
		caught: "of 20 are claimed"}, in: "store/couchbase", test: "^TestTwoCallsOfABlock"},
	{mutant: mutant{name: "who has lost its lease ends a run", edits: []change{{"store/couchbase/finish.go",
		"		w.torn = w.torn || len(lost) > 0 && len(w.have) > 0\n",
		"		w.torn = w.torn || len(lost) > 0 && len(w.have) > 0\n		lost = nil\n"}},
		caught: "are refused"}, in: "store/couchbase", test: "^TestAStaleRun"},
	{mutant: mutant{name: "nobody looks for what no page names", ground: "couchbase", edits: []change{{
		"store/couchbase/sweep.go", "		if t := d.ready(); t != nil {\n			lost[",
		"		if t := d.ready(); t != nil && t.Lap == 0 {\n			lost["}},
		faults: "F1,F45", caught: "I1:"}, env: envTime + "=30s"},
	{mutant: mutant{name: "the dead may claim on Couchbase", ground: "couchbase",
		edits: []change{watchNothing, deafHeart, {
			"store/couchbase/claim.go", "append([]gocb.MutateInSpec{replaceG}, specs...)...", "specs..."}},
		faults: "F2", caught: "I4"}, env: envTime + "=20s"},
	{mutant: mutant{name: "a lease is written without its CAS", ground: "couchbase", edits: []change{{
		"store/couchbase/claim.go", "	won, err := s.writeAt(ctx, d, gocb.DurabilityLevelUnknown)\n",
		"	if is, err := s.read(ctx, d.ref); err == nil && is != nil {\n		d.cas = is.cas\n	}\n" +
			"	won, err := s.writeAt(ctx, d, gocb.DurabilityLevelUnknown)\n"}},
		faults: "F44,F1", caught: "I[1345]"}, env: envTime + "=20s"},
}

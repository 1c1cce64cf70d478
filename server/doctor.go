package server

import "github.com/tuskqueue/tusk/doctor"

// Diagnosis is the result of the doctor.
type Diagnosis struct {
	Status   string    `json:"status" doc:"the worst of the findings: ok, warn or critical"`
	Findings []Finding `json:"findings"`
}

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check" doc:"stable, such as leader or disk"`
	Status string `json:"status" doc:"ok, warn or critical"`
	Text   string `json:"text"`
	Fix    string `json:"fix,omitempty" doc:"how to fix it"`
}

func diagnose(c *call, _ struct{}) (Diagnosis, error) {
	found := doctor.Examine(doctor.Gather(c.r.Context(), c.client, doctor.Options{}), doctor.Options{})
	d := Diagnosis{Status: string(doctor.Worst(found))}
	for _, f := range found {
		d.Findings = append(d.Findings, Finding{f.Check, string(f.Status), f.Text, f.Fix})
	}
	return d, nil
}

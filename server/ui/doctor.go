package ui

import "github.com/tuskqueue/tusk/doctor"

func diagnosis(v *visit) (answer, error) {
	found := doctor.Examine(doctor.Gather(v.r.Context(), v.client, doctor.Options{}), doctor.Options{})
	return answer{page: "doctor", title: "Doctor", section: "doctor", data: found}, nil
}

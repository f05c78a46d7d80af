package state

import (
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/ticket"
)

// The interfaces that the store implements.
var (
	_ ticket.Storage     = (*Store)(nil)
	_ auth.IdentityStore = (*Store)(nil)
	_ auth.Ledger        = (*Store)(nil)
)

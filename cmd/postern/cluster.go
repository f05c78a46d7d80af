package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/csr"
	"github.com/postern-dev/postern/control/kube/pod"
)

// newClusterIssuer creates the issuer of spec.services.auth.issuer.serviceAccount, or of csr, in
// the cluster that this gateway runs in or beside.
func newClusterIssuer(o gateway.ClusterIssuerOptions) (gateway.ClusterIssuer, error) {
	c, err := kube.Connect("postern/" + buildVersion().Version)
	if err != nil {
		return nil, err
	}
	if o.CSR {
		return csr.New(c, csr.Options{Gateway: o.Gateway, TTL: o.TTL, Ledger: o.Ledger, Report: o.Report, Logger: o.Logger})
	}
	return kube.NewTokenIssuer(c, kube.TokenIssuerOptions{
		Gateway: o.Gateway, Namespace: o.Namespace, TTL: o.TTL, Logger: o.Logger,
	}), nil
}

// runInCluster runs the gateway whenever this pod is the active one, until ctx ends.
func runInCluster(ctx context.Context, cfg *config.Resolved, load func() (*config.Resolved, error), hangups <-chan os.Signal, log *slog.Logger) error {
	c, err := kube.Connect("postern/" + buildVersion().Version)
	if err != nil {
		return cfg.ProblemAt("spec.kubernetes", err.Error())
	}
	return pod.Run(ctx, pod.Options{Cluster: c, Config: cfg, Logger: log}, func(ctx context.Context, s pod.Seams) error {
		return runAgain(ctx, cfg, load, func(cfg *config.Resolved) (bool, error) {
			return runOnce(ctx, gateway.Options{
				Config: cfg, ReadConfig: load, Logger: log,
				State: s.State, ClusterPeers: s.Peers(ctx), AdmitLocal: s.AdmitLocal, KnownLocal: s.KnownLocal, LocalHost: s.LocalHost, Inside: s.Inside, Clusterset: s.Clusterset,
				OnSuperseded: s.OnSuperseded,
			}, hangups, s.Attach)
		})
	})
}

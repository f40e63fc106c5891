//! What the configuration says to the node API.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use polylet_kit::{BoxError, Ctx};

use crate::core::access::Mode;

/// The settings of this service.
pub(crate) struct Settings {
    /// `None` where a port is off.
    pub(crate) https: Option<SocketAddr>,
    pub(crate) healthz: Option<SocketAddr>,
    pub(crate) read_only: Option<SocketAddr>,
    pub(crate) certificate: Certificate,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) access: Access,
    pub(crate) pod_logs: PathBuf,
    pub(crate) node_ip: Option<IpAddr>,
}

/// Where the serving certificate comes from.
pub(crate) enum Certificate {
    /// The configuration names certificate and key.
    Given(PathBuf, PathBuf),
    /// The cluster signs it (`serverTLSBootstrap`): status-reporter keeps it in this file, which
    /// is not there before the request was approved.
    Signed(PathBuf),
    /// Made here.
    OwnMade,
}

/// Who may do what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) anonymous: bool,
    pub(crate) mode: Mode,
    /// Tokens are reviewed by the API server.
    pub(crate) tokens: bool,
}

impl Settings {
    /// Reads the configuration.
    ///
    /// # Errors
    /// When an address is not one.
    pub(crate) fn read(ctx: &Ctx) -> Result<Self, BoxError> {
        let kubelet = &ctx.config().kubelet;
        let address: IpAddr = parse("address", &kubelet.address)?;
        let loopback: IpAddr = parse("healthzBindAddress", &kubelet.healthz_bind_address)?;
        let socket = |ip: IpAddr, port: u16| (port != 0).then(|| SocketAddr::new(ip, port));
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        let given = path(&kubelet.tls_cert_file).zip(path(&kubelet.tls_private_key_file));
        let polylet = &ctx.config().polylet;
        let certificate = match given {
            Some((certificate, key)) => Certificate::Given(certificate, key),
            None if kubelet.server_tls_bootstrap && polylet.kubeconfig.is_some() => {
                let kept = polylet.cert_directory().join("kubelet-server-current.pem");
                Certificate::Signed(kept)
            }
            None => Certificate::OwnMade,
        };
        let mode = if kubelet.authorization.mode == "AlwaysAllow" {
            Mode::AlwaysAllow
        } else {
            Mode::Webhook
        };
        Ok(Self {
            https: socket(address, kubelet.port).filter(|_| kubelet.enable_server),
            healthz: socket(loopback, kubelet.healthz_port),
            read_only: socket(address, kubelet.read_only_port).filter(|_| kubelet.enable_server),
            certificate,
            client_ca: path(&kubelet.authentication.x509.client_ca_file),
            access: Access {
                anonymous: kubelet.authentication.anonymous.enabled,
                mode,
                tokens: kubelet.authentication.webhook.enabled,
            },
            pod_logs: PathBuf::from(&kubelet.pod_logs_dir),
            node_ip: polylet_kit::address::of_node(ctx.config()),
        })
    }
}

fn parse(field: &str, text: &str) -> Result<IpAddr, BoxError> {
    text.parse()
        .map_err(|_| format!("{field}: {text:?} is not an IP address").into())
}

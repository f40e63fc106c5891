// This file is @generated from the .proto files.
impl Known for crate::common::v1::Cause {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::common::v1::PodRef {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::common::v1::Position {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::common::v1::Reset {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::common::v1::Synced {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::AllocateDevicesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::AllocateDevicesResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::AllocatedDevice {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::ContainerDeviceRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::ContainerDevices {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::DeviceMount {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::DeviceNode {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::DeviceResource {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::DeviceResourceKey {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::PodDevices {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::PodDevicesKey {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::PrepareContainerRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::PrepareContainerResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::ResourceDevices {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::WatchPodDevicesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::WatchPodDevicesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.device.v1.WatchPodDevicesResponse.change"),
                Some(_) => None,
            })
    }
}
impl Known for crate::device::v1::WatchResourcesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::device::v1::WatchResourcesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.device.v1.WatchResourcesResponse.change"),
                Some(_) => None,
            })
    }
}
impl Known for crate::eviction::v1::Condition {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::eviction::v1::Resource>([&self.resource], "polylet.eviction.v1.Condition.resource"))
    }
}
impl Known for crate::eviction::v1::ContainerReclaim {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::eviction::v1::Eviction {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::eviction::v1::Resource>([&self.resource], "polylet.eviction.v1.Eviction.resource"))
    }
}
impl Known for crate::eviction::v1::Pressure {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.fact {
                None => Some("polylet.eviction.v1.Pressure.fact"),
                Some(crate::eviction::v1::pressure::Fact::Condition(value)) => messages([value]),
                Some(crate::eviction::v1::pressure::Fact::Eviction(value)) => messages([value]),
                Some(_) => None,
            })
    }
}
impl Known for crate::eviction::v1::PressureKey {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.key {
                None => Some("polylet.eviction.v1.PressureKey.key"),
                Some(crate::eviction::v1::pressure_key::Key::Resource(value)) => enums::<crate::eviction::v1::Resource>([value], "polylet.eviction.v1.PressureKey.resource"),
                Some(_) => None,
            })
    }
}
impl Known for crate::eviction::v1::WatchPressureRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::eviction::v1::WatchPressureResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.eviction.v1.WatchPressureResponse.change"),
                Some(crate::eviction::v1::watch_pressure_response::Change::Upsert(value)) => messages([value]),
                Some(crate::eviction::v1::watch_pressure_response::Change::Remove(value)) => messages([value]),
                Some(_) => None,
            })
    }
}
impl Known for crate::imagegc::v1::Image {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::imagegc::v1::ImageKey {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::imagegc::v1::ReclaimRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::imagegc::v1::ReclaimResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::imagegc::v1::WatchImagesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::imagegc::v1::WatchImagesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.imagegc.v1.WatchImagesResponse.change"),
                Some(_) => None,
            })
    }
}
impl Known for crate::lifecycle::v1::Api {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::DrainRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::DrainResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::GetInfoRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::GetInfoResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::HealthCondition {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::ListMetricsRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::ListMetricsResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.families))
    }
}
impl Known for crate::lifecycle::v1::MetricExemplar {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::MetricFamily {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::lifecycle::v1::MetricKind>([&self.kind], "polylet.lifecycle.v1.MetricFamily.kind"))
    }
}
impl Known for crate::lifecycle::v1::MetricHistogram {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::MetricLabel {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::MetricSeries {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::Peer {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::ProfileRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::lifecycle::v1::ProfileKind>([&self.kind], "polylet.lifecycle.v1.ProfileRequest.kind"))
    }
}
impl Known for crate::lifecycle::v1::ProfileResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::PublishMetricsRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.families))
    }
}
impl Known for crate::lifecycle::v1::PublishMetricsResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::SetLogVerbosityRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::lifecycle::v1::SetLogVerbosityResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::notice::v1::Notice {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::notice::v1::Severity>([&self.severity], "polylet.notice.v1.Notice.severity"))
    }
}
impl Known for crate::notice::v1::NoticeKey {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::notice::v1::ObjectRef {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::notice::v1::WatchNoticesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::notice::v1::WatchNoticesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.notice.v1.WatchNoticesResponse.change"),
                Some(crate::notice::v1::watch_notices_response::Change::Upsert(value)) => messages([value]),
                Some(_) => None,
            })
    }
}
impl Known for crate::pleg::v1::AttachRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::AttachResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::CheckpointContainerRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::CheckpointContainerResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::Container {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::pleg::v1::ContainerPhase>([&self.phase], "polylet.pleg.v1.Container.phase"))
    }
}
impl Known for crate::pleg::v1::ExecRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::ExecResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::PodState {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.containers))
    }
}
impl Known for crate::pleg::v1::PortForwardRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::PortForwardResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::RefreshPodRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.changes))
    }
}
impl Known for crate::pleg::v1::RefreshPodResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.state))
    }
}
impl Known for crate::pleg::v1::Resources {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::RunCommandRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::RunCommandResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::RuntimeChange {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::pleg::v1::RuntimeChangeKind>([&self.kind], "polylet.pleg.v1.RuntimeChange.kind"))
    }
}
impl Known for crate::pleg::v1::RuntimeHandler {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::Sandbox {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::User {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::WatchPodStatesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::WatchPodStatesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.pleg.v1.WatchPodStatesResponse.change"),
                Some(crate::pleg::v1::watch_pod_states_response::Change::Upsert(value)) => messages([value]),
                Some(_) => None,
            })
    }
}
impl Known for crate::pleg::v1::WatchRuntimeRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::pleg::v1::WatchRuntimeResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::Absent {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::GetObjectRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::podconfig::v1::PodSource>([&self.source], "polylet.podconfig.v1.GetObjectRequest.source"))
    }
}
impl Known for crate::podconfig::v1::GetObjectResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.state {
                None => Some("polylet.podconfig.v1.GetObjectResponse.state"),
                Some(_) => None,
            })
    }
}
impl Known for crate::podconfig::v1::IssueTokenRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::IssueTokenResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::ListManifestErrorsRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::ListManifestErrorsResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.errors))
    }
}
impl Known for crate::podconfig::v1::ManifestError {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::podconfig::v1::PodSource>([&self.source], "polylet.podconfig.v1.ManifestError.source"))
    }
}
impl Known for crate::podconfig::v1::MirrorPod {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::Pod {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::podconfig::v1::PodSource>([&self.source], "polylet.podconfig.v1.Pod.source"))
            .or_else(|| enums::<crate::podconfig::v1::TerminalPhase>([&self.terminal_phase], "polylet.podconfig.v1.Pod.terminal_phase"))
    }
}
impl Known for crate::podconfig::v1::PodCertificate {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::Refused {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::Service {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::ServiceKey {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::ServicePort {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::Unknown {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::WatchMirrorPodsRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::WatchMirrorPodsResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.podconfig.v1.WatchMirrorPodsResponse.change"),
                Some(_) => None,
            })
    }
}
impl Known for crate::podconfig::v1::WatchNodeRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::WatchNodeResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.state {
                None => Some("polylet.podconfig.v1.WatchNodeResponse.state"),
                Some(_) => None,
            })
    }
}
impl Known for crate::podconfig::v1::WatchObjectRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::podconfig::v1::PodSource>([&self.source], "polylet.podconfig.v1.WatchObjectRequest.source"))
    }
}
impl Known for crate::podconfig::v1::WatchObjectResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.state {
                None => Some("polylet.podconfig.v1.WatchObjectResponse.state"),
                Some(_) => None,
            })
    }
}
impl Known for crate::podconfig::v1::WatchPodCertificateRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::WatchPodCertificateResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.state {
                None => Some("polylet.podconfig.v1.WatchPodCertificateResponse.state"),
                Some(_) => None,
            })
    }
}
impl Known for crate::podconfig::v1::WatchPodsRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::podconfig::v1::PodSource>([&self.source], "polylet.podconfig.v1.WatchPodsRequest.source"))
    }
}
impl Known for crate::podconfig::v1::WatchPodsResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.podconfig.v1.WatchPodsResponse.change"),
                Some(crate::podconfig::v1::watch_pods_response::Change::Upsert(value)) => messages([value]),
                Some(_) => None,
            })
    }
}
impl Known for crate::podconfig::v1::WatchServicesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::podconfig::v1::WatchServicesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.podconfig.v1.WatchServicesResponse.change"),
                Some(_) => None,
            })
    }
}
impl Known for crate::prober::v1::ListProbeCountsRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::prober::v1::ListProbeCountsResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.probes))
    }
}
impl Known for crate::prober::v1::ProbeCounts {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::prober::v1::ProbeKind>([&self.kind], "polylet.prober.v1.ProbeCounts.kind"))
    }
}
impl Known for crate::prober::v1::ProbeStatus {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.key))
            .or_else(|| enums::<crate::prober::v1::Outcome>([&self.outcome], "polylet.prober.v1.ProbeStatus.outcome"))
    }
}
impl Known for crate::prober::v1::ProbeStatusKey {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::prober::v1::ProbeKind>([&self.kind], "polylet.prober.v1.ProbeStatusKey.kind"))
    }
}
impl Known for crate::prober::v1::WatchProbeStatusesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::prober::v1::WatchProbeStatusesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.prober.v1.WatchProbeStatusesResponse.change"),
                Some(crate::prober::v1::watch_probe_statuses_response::Change::Upsert(value)) => messages([value]),
                Some(crate::prober::v1::watch_probe_statuses_response::Change::Remove(value)) => messages([value]),
                Some(_) => None,
            })
    }
}
impl Known for crate::stats::v1::GetExpositionRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::stats::v1::ExpositionKind>([&self.kind], "polylet.stats.v1.GetExpositionRequest.kind"))
    }
}
impl Known for crate::stats::v1::GetExpositionResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::stats::v1::GetSummaryRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::stats::v1::GetSummaryResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::status::v1::ListPodStatusesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::status::v1::ListPodStatusesResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::status::v1::PodStatus {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::status::v1::WatchPodStatusesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::status::v1::WatchPodStatusesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.status.v1.WatchPodStatusesResponse.change"),
                Some(_) => None,
            })
    }
}
impl Known for crate::supervisor::v1::GetTraceRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::GetTraceResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::GetTracesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::GetTracesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::ListServicesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::ListServicesResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::ListTracesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::ListTracesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::ListUpgradesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::ListUpgradesResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.upgrades))
    }
}
impl Known for crate::supervisor::v1::RecordStartsRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::RecordStartsResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::RollbackRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::RollbackResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.progress))
    }
}
impl Known for crate::supervisor::v1::ServiceProgram {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::ServiceStatus {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::Span {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::StartComparison {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::StepTime {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::TraceFilter {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::TraceSummary {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::UpgradeProgress {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::supervisor::v1::UpgradeStep>([&self.step], "polylet.supervisor.v1.UpgradeProgress.step"))
    }
}
impl Known for crate::supervisor::v1::UpgradeRecord {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::supervisor::v1::UpgradeKind>([&self.kind], "polylet.supervisor.v1.UpgradeRecord.kind"))
            .or_else(|| enums::<crate::supervisor::v1::UpgradeStep>([&self.step], "polylet.supervisor.v1.UpgradeRecord.step"))
    }
}
impl Known for crate::supervisor::v1::UpgradeRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::supervisor::v1::UpgradeResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.progress))
    }
}
impl Known for crate::sync::v1::ContainerSyncStatus {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::sync::v1::PodSync {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::sync::v1::SyncPhase>([&self.phase], "polylet.sync.v1.PodSync.phase"))
    }
}
impl Known for crate::sync::v1::ResizePending {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::sync::v1::ResizeProgress {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::sync::v1::Terminal {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::sync::v1::WaitingFor {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::sync::v1::WatchPodSyncRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::sync::v1::WatchPodSyncResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.sync.v1.WatchPodSyncResponse.change"),
                Some(crate::sync::v1::watch_pod_sync_response::Change::Upsert(value)) => messages([value]),
                Some(_) => None,
            })
    }
}
impl Known for crate::volume::v1::ApplyPodRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::ApplyPodResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.state))
    }
}
impl Known for crate::volume::v1::ClaimSize {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::volume::v1::ResizeStatus>([&self.status], "polylet.volume.v1.ClaimSize.status"))
    }
}
impl Known for crate::volume::v1::CompleteDesiredRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::CompleteDesiredResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::Driver {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::FsUsage {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::GetVolumeStatsRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::GetVolumeStatsResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::PodVolumes {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.volumes))
    }
}
impl Known for crate::volume::v1::PrepareSubPathsRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::PrepareSubPathsResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::ReleasePodRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::ReleasePodResponse {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.state))
    }
}
impl Known for crate::volume::v1::SubPath {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::Volume {
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| enums::<crate::volume::v1::VolumePhase>([&self.phase], "polylet.volume.v1.Volume.phase"))
    }
}
impl Known for crate::volume::v1::VolumeStats {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::WatchClaimSizesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::WatchClaimSizesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| messages(&self.claims))
    }
}
impl Known for crate::volume::v1::WatchDriversRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::WatchDriversResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::WatchPodVolumesRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::WatchPodVolumesResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
            .or_else(|| match &self.change {
                None => Some("polylet.volume.v1.WatchPodVolumesResponse.change"),
                Some(crate::volume::v1::watch_pod_volumes_response::Change::Upsert(value)) => messages([value]),
                Some(_) => None,
            })
    }
}
impl Known for crate::volume::v1::WatchVolumesInUseRequest {
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}
impl Known for crate::volume::v1::WatchVolumesInUseResponse {
    const STREAMED: bool = true;
    fn unknown(&self) -> Option<&'static str> {
        None
    }
}

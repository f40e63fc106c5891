use std::sync::{Arc, Mutex};

use polylet_wire::stats::v1::stats_service_server::{StatsService, StatsServiceServer};
use polylet_wire::stats::v1::{GetExpositionResponse, GetSummaryResponse};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Response;

use super::*;

/// The longest time that eviction allows for a measurement.
const LONGEST: Duration = Duration::from_secs(40);

/// Statistics that take this long to measure. As in eviction, one measurement at a time serves all callers, and goes on
/// without them.
struct SlowStats {
    takes: Duration,
    started: Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    in_flight: Option<watch::Receiver<Option<Summary>>>,
    last: Option<Summary>,
    measured: u64,
}

/// When its measurement began, and its number.
type Summary = (SystemTime, u64);

impl SlowStats {
    fn client(takes: Duration) -> StatsClient<StatsServiceServer<Self>> {
        StatsClient::new(StatsServiceServer::new(Self {
            takes,
            started: Instant::now(),
            state: Arc::default(),
        }))
    }

    /// The time of the paused clock.
    fn now(&self) -> SystemTime {
        time(self.started.elapsed().as_secs())
    }

    fn measure(&self) -> watch::Receiver<Option<Summary>> {
        let mut state = self.state.lock().unwrap();
        if let Some(in_flight) = &state.in_flight {
            return in_flight.clone();
        }
        state.measured += 1;
        let summary = (self.now(), state.measured);
        let (sender, receiver) = watch::channel(None);
        state.in_flight = Some(receiver.clone());
        let (takes, shared) = (self.takes, Arc::clone(&self.state));
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            let mut state = shared.lock().unwrap();
            (state.in_flight, state.last) = (None, Some(summary));
            sender.send_replace(Some(summary));
        });
        receiver
    }

    async fn summary(&self, oldest: Option<SystemTime>) -> Summary {
        let last = self.state.lock().unwrap().last;
        if let (Some(oldest), Some(last)) = (oldest, last)
            && last.0 >= oldest
        {
            return last;
        }
        let mut measured = self.measure();
        let summary = measured.wait_for(Option::is_some).await.unwrap();
        summary.unwrap()
    }
}

/// As the kit's channel: a call ends at its deadline.
async fn in_time<T, R>(
    request: &Request<T>,
    response: impl Future<Output = R>,
) -> Result<R, Status> {
    let deadline = request.metadata().get("grpc-timeout").unwrap();
    let micros = deadline.to_str().unwrap().trim_end_matches('u');
    let deadline = Duration::from_micros(micros.parse().unwrap());
    let response = timeout(deadline, response).await;
    response.map_err(|_| Status::deadline_exceeded("too late"))
}

#[tonic::async_trait]
impl StatsService for SlowStats {
    async fn get_summary(
        &self,
        request: Request<GetSummaryRequest>,
    ) -> Result<Response<GetSummaryResponse>, Status> {
        let oldest = request.get_ref().not_older_than;
        let oldest = oldest.map(|oldest| oldest.try_into().unwrap());
        let (_, number) = in_time(&request, self.summary(oldest)).await?;
        Ok(Response::new(GetSummaryResponse {
            sampled_at: None,
            summary: number.to_string().into(),
        }))
    }

    async fn get_exposition(
        &self,
        request: Request<GetExpositionRequest>,
    ) -> Result<Response<GetExpositionResponse>, Status> {
        let (_, number) = in_time(&request, self.summary(None)).await?;
        Ok(Response::new(GetExpositionResponse {
            sampled_at: None,
            text: number.to_string().into(),
        }))
    }
}

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

#[tokio::test(start_paused = true)]
async fn reports_wait_as_long_as_eviction_measures() {
    for takes in [Duration::from_secs(12), LONGEST] {
        let client = SlowStats::client(takes);
        assert_eq!(client.summary(false).await.unwrap(), "1");
        let text = client.exposition(ExpositionKind::Cadvisor).await;
        assert_eq!(text.unwrap(), "2");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_have_the_last_summary_while_the_next_one_takes_long() {
    const PERIOD: u64 = 60;
    const SCRAPE_INTERVAL: u64 = 15;
    let client = SlowStats::client(Duration::from_secs(12));
    let started = Instant::now();
    let mut seen = Vec::new();
    for scrape in 0..11 {
        let at = scrape * SCRAPE_INTERVAL;
        tokio::time::sleep_until(started + Duration::from_secs(at)).await;
        let begun = Instant::now();
        let oldest = time(at) - Duration::from_secs(PERIOD);
        let summary = client.last_summary(oldest).await;
        assert!(begun.elapsed() < Duration::from_secs(5));
        seen.push(summary.map(|number| String::from_utf8(number.to_vec()).unwrap()));
    }
    // Those of 0 s, 75 s, and 150 s.
    let expected = ["", "1", "1", "1", "1", "1", "2", "2", "2", "2", "2"];
    let seen: Vec<_> = seen.into_iter().map(Option::unwrap_or_default).collect();
    assert_eq!(seen, expected);
}

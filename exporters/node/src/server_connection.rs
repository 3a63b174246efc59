//! One HTTP connection with its deadlines: each step must complete in time, and a client that closed its sending side
//! still receives its response. Over TLS the client may choose HTTP/2.

use std::{
    error::Error,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming, SizeHint},
    header::{CONNECTION, HeaderValue},
    rt::bounds::Http2ServerConnExec,
    server::conn::{http1, http2},
    service::{HttpService, Service, service_fn},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, copy, sink},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    connection_admission::{ConnectionPermit, ConnectionStatus},
    server_stream::{ServerStream, is_http2},
};

/// The buffer of one connection in bytes, which also bounds a request's head. Prometheus sends about 300.
const BUFFER: usize = 16 << 10;

/// How long, and how much, input is drained after the last response. A client that is done closes the connection first.
const LINGER: Duration = Duration::from_secs(1);
const MAX_UNREAD: u64 = 1 << 20;

/// Concurrent requests of one HTTP/2 connection; further ones wait at the client.
const MAX_STREAMS: u32 = 8;

/// What one HTTP/2 connection may send ahead, in bytes: of all request bodies together, and of responses.
const WINDOW: u32 = 256 << 10;

/// Answers the requests of one connection until it ends, times out or is evicted. After `stop` it finishes the current
/// responses.
pub async fn serve_connection<S, B>(
    stream: ServerStream,
    permit: ConnectionPermit,
    service: S,
    stop: impl Future<Output = ()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let shared = Arc::clone(permit.connection_status());
    let answers = service_fn(|request| {
        shared.record_request(Instant::now());
        let ends = BodyEndGuard(Arc::clone(&shared));
        let (answer, last) = (service.call(request), permit.is_reserve());
        async move {
            let mut response = answer.await?.map(|body| TrackedBody { body, _ends: ends });
            if last {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, S::Error>(response)
        }
    });
    let is_http2 = is_http2(&stream);
    let io = TokioIo::new(WatchedStream { stream, shared: Arc::clone(&shared), is_http2 });
    if is_http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_send_buf_size(WINDOW as usize)
            .max_header_list_size(BUFFER as u32)
            .serve_connection(io, answers);
        let mut connection = pin!(connection);
        if drive_connection(connection.as_mut(), &shared, stop).await == ConnectionEnd::ByServer {
            // The client learns which of its requests were not read, and sends them again.
            connection.as_mut().begin_shutdown();
            let _ended = timeout(LINGER, connection).await;
        }
        return;
    }
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .half_close(true)
        .max_buf_size(BUFFER)
        .serve_connection(io, answers);
    let end = drive_connection(Pin::new(&mut connection), &shared, stop).await;
    if end == ConnectionEnd::Finished {
        shared.record_linger(Instant::now());
        drain_input(connection.into_parts().io.into_inner().stream).await;
    }
}

/// Why a connection is no longer driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    /// The client closed it, broke it, or has its last response.
    Finished,
    /// It timed out, was evicted, or was idle at the stop of the server.
    ByServer,
}

/// A connection of either version of HTTP.
trait HttpConnection: Future<Output = hyper::Result<()>> {
    /// Lets open responses finish and accepts no further request.
    fn begin_shutdown(self: Pin<&mut Self>);
}

impl<S> HttpConnection for http1::Connection<TokioIo<WatchedStream>, S>
where
    S: HttpService<Incoming>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::ResBody: 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn begin_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<S> HttpConnection for http2::Connection<TokioIo<WatchedStream>, S, TokioExecutor>
where
    S: HttpService<Incoming>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::ResBody: 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn Error + Send + Sync>>,
    TokioExecutor: Http2ServerConnExec<S::Future, S::ResBody>,
{
    fn begin_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Drives a connection to its end.
async fn drive_connection<C: HttpConnection>(
    mut connection: Pin<&mut C>,
    shared: &ConnectionStatus,
    stop: impl Future<Output = ()>,
) -> ConnectionEnd {
    let mut stop = pin!(stop);
    let mut evicted = pin!(shared.wait_for_eviction());
    let mut stopping = false;
    loop {
        let deadline = shared.next_deadline();
        let time = deadline.map(|(time, _)| time);
        // Activity of the connection moves its deadline, which is then checked again.
        let finished = std::future::poll_fn(|context| {
            let result = connection.as_mut().poll(context);
            match result {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if shared.next_deadline() != deadline => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        tokio::select! {
            biased;
            () = &mut evicted => {
                tracing::debug!("idle connection evicted for a new one");
                return ConnectionEnd::ByServer;
            }
            ended = finished => match ended {
                None => {}
                Some(ended) => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "connection ended with an error");
                    }
                    return ConnectionEnd::Finished;
                }
            },
            () = &mut stop, if !stopping => {
                if shared.is_idle() {
                    return ConnectionEnd::ByServer;
                }
                stopping = true;
                connection.as_mut().begin_shutdown();
            }
            () = wait_for_deadline(time) => {
                tracing::debug!(what = ?deadline.map(|(_, late)| late), "connection timed out");
                return ConnectionEnd::ByServer;
            }
        }
    }
}

/// Waits for a deadline; for ever without one.
async fn wait_for_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Drains input briefly after the last response. If the connection is closed with unread bytes, such as those of an
/// oversized head, the kernel resets it, and the client loses the error response.
async fn drain_input(stream: ServerStream) {
    let mut rest = stream.take(MAX_UNREAD);
    // However this ends, the connection is closed next.
    let _ended = timeout(LINGER, copy(&mut rest, &mut sink())).await;
}

/// Records on drop that the response was handed over.
struct BodyEndGuard(Arc<ConnectionStatus>);

impl Drop for BodyEndGuard {
    fn drop(&mut self) {
        self.0.record_body_end();
    }
}

/// The body of a response, with the guard that records its end.
struct TrackedBody<B> {
    body: B,
    _ends: BodyEndGuard,
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that records its reads and writes in the connection status.
struct WatchedStream {
    stream: ServerStream,
    shared: Arc<ConnectionStatus>,
    /// Whether received bytes may be more than requests: HTTP/2 has frames about the connection itself.
    is_http2: bool,
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before && !self.is_http2 {
            self.shared.record_read(Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.shared.record_write(result.is_pending(), Instant::now());
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.shared.record_write(result.is_pending(), Instant::now());
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.shared.record_flush(Instant::now());
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

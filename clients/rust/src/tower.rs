//! A `tower` layer that asks the limiter about every request: for axum, tonic, hyper. Needs the feature `tower`.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use redis_token_bucket_client::tower::{Ask, RateLimitLayer};
//! use redis_token_bucket_client::{Connection, Limiter, Policy};
//! use std::sync::Arc;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Arc::new(Policy::new("1000 burst, 200/s".parse()?, "50 burst, 20/s".parse()?));
//! let connection = Connection::single("redis://127.0.0.1:6379").await?;
//! let limiter = Arc::new(Limiter::new(connection, move |_, _| Arc::clone(&policy)));
//! let limit = RateLimitLayer::new(limiter, |request: &axum::extract::Request| {
//!     let tenant = request.headers().get("x-tenant")?.to_str().ok()?;
//!     Some(Ask { tenant: tenant.to_owned(), route: request.uri().path().to_owned(), cost: 1 })
//! });
//! let app: Router = Router::new().route("/search", get(async || "found")).layer(limit);
//! # Ok(())
//! # }
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use crate::decision::Decision;
use crate::{Error, Limiter};

/// What to ask the limiter about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The tenant it is for. Take it from what the client has proved to be, not from what it says.
    pub tenant: String,
    /// The route. Take one of a few names of your own, not the path with ids in it: each has a bucket.
    pub route: String,
    /// The tokens it takes.
    pub cost: u64,
}

/// Wraps services so that a request goes on only if the limiter allows it.
///
/// A denied request gets an empty response with the status and fields of [`crate::http`]. An allowed one goes on with the
/// [`Decision`] among its extensions, and its response gets the `RateLimit` fields. A request that the limiter cannot
/// decide is answered with 429 if its cost is above every shard's capacity, and with 500 otherwise, and the reason is
/// reported as an error event.
#[derive(Clone, Debug)]
pub struct RateLimitLayer<F> {
    limiter: Arc<Limiter>,
    ask: F,
}

impl<F> RateLimitLayer<F> {
    /// A layer that asks `limiter` what `ask` makes of a request; `None` lets it pass unasked.
    pub fn new<B>(limiter: Arc<Limiter>, ask: F) -> RateLimitLayer<F>
    where
        F: Fn(&Request<B>) -> Option<Ask>,
    {
        RateLimitLayer { limiter, ask }
    }
}

impl<S, F: Clone> Layer<S> for RateLimitLayer<F> {
    type Service = RateLimited<S, F>;

    fn layer(&self, inner: S) -> RateLimited<S, F> {
        RateLimited { inner, limiter: Arc::clone(&self.limiter), ask: self.ask.clone() }
    }
}

/// A service behind a [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimited<S, F> {
    inner: S,
    limiter: Arc<Limiter>,
    ask: F,
}

impl<S, F, B, R> Service<Request<B>> for RateLimited<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&Request<B>) -> Option<Ask>,
    B: Send + 'static,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The service that was polled ready is the one to call; a clone may not be ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let Some(ask) = (self.ask)(&request) else { return Box::pin(inner.call(request)) };
        let limiter = Arc::clone(&self.limiter);
        Box::pin(async move {
            let decision = match limiter.authorize(&ask.tenant, &ask.route, ask.cost).await {
                Ok(decision) => decision,
                Err(error) => return Ok(undecided(&ask, &error)),
            };
            if !decision.is_allowed() {
                let mut response = Response::new(R::default());
                *response.status_mut() = status(&decision);
                add_fields(response.headers_mut(), &decision);
                return Ok(response);
            }
            request.extensions_mut().insert(decision);
            let mut response = inner.call(request).await?;
            add_fields(response.headers_mut(), &decision);
            Ok(response)
        })
    }
}

fn undecided<R: Default>(ask: &Ask, error: &Error) -> Response<R> {
    let mut response = Response::new(R::default());
    *response.status_mut() = match error {
        Error::CostAboveShard { .. } => StatusCode::TOO_MANY_REQUESTS,
        _ => {
            tracing::error!(tenant = ask.tenant, route = ask.route, cost = ask.cost, %error, "cannot be decided");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    response
}

fn status(decision: &Decision) -> StatusCode {
    StatusCode::from_u16(crate::http::status(decision)).unwrap_or(StatusCode::TOO_MANY_REQUESTS)
}

fn add_fields(headers: &mut HeaderMap, decision: &Decision) {
    for (name, value) in crate::http::fields(decision) {
        // Only digits, names of ours and ASCII punctuation stand in a value.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
}

//! Options for compiling a filter text.

use super::{Error, Filter, LiveFilter};
use fyke_filter::{Options, Reading, Resolver};
use fyke_filters::{FilterSet, Inputs, Tags};
use fyke_frame::LinkType;
use std::net::Ipv4Addr;

/// Options for [`Filter`] and [`LiveFilter`], from [`Filter::builder`].
///
/// The defaults are those of a capture file from Ethernet, read as libpcap reads a text.
///
/// ```
/// use fyke::Filter;
/// use fyke::frame::LinkType;
///
/// // IPv4 packets without a link header, the reading by meaning instead of libpcap's.
/// let filter = Filter::builder().link(LinkType::IPV4).scoped(true).compile("host 10.0.0.1")?;
/// let packet = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
/// assert!(filter.matches(&packet));
/// # Ok::<(), fyke::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "a builder does nothing until it compiles a text"]
pub struct FilterBuilder {
    options: Options,
}

impl FilterBuilder {
    /// Sets the link type of the frames; Ethernet if not set.
    pub fn link(mut self, link: LinkType) -> Self {
        self.options.link = link;
        self
    }

    /// Reads the text for frames of a live capture on Linux instead of a capture file. Then `inbound` and `ifindex`
    /// are allowed, and a VLAN tag that the device has removed counts: give frames with their metadata to
    /// [`Filter::matches_frame`] or [`Filter::matches_batch`].
    pub fn live_capture(mut self, live: bool) -> Self {
        self.options.live = live;
        self
    }

    /// Reads the text by meaning ([`fyke::filter::scoped`](crate::filter::scoped)) instead of exactly as libpcap
    /// does: tags and tunnels shift nothing, and later fragments have the ports of their first. Frames should come in
    /// capture order then. Costs some 100 ns a frame, because the headers of every frame are walked.
    pub fn scoped(mut self, scoped: bool) -> Self {
        self.options.reading = if scoped { Reading::Scoped } else { Reading::Compat };
        self
    }

    /// Sets the netmask of the captured network. `ip broadcast` is refused without it.
    pub fn netmask(mut self, netmask: Ipv4Addr) -> Self {
        self.options.netmask = Some(u32::from(netmask));
        self
    }

    /// Reads the text for a capture file from a machine with big-endian numbers, which matters for link type `NULL`
    /// only.
    pub fn big_endian_file(mut self, swapped: bool) -> Self {
        self.options.swapped = swapped;
        self
    }

    /// Sets the resolver for host names, such as [`system_resolver`](crate::filter::system_resolver). Host names are
    /// refused without one.
    pub fn resolver(mut self, resolve: Resolver) -> Self {
        self.options.resolve = Some(resolve);
        self
    }

    /// Compiles a text. An empty text accepts every frame. Costs some microseconds and 3 µs a primitive.
    ///
    /// # Errors
    /// [`Error::Text`] with the position and a hint if the text is not a filter for this link type.
    pub fn compile(&self, text: &str) -> Result<Filter, Error> {
        Filter::new(text, &self.options)
    }

    /// Compiles a text as the first filter of a set that is edited while others evaluate it. An empty text leaves the
    /// set empty, which accepts every frame.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn compile_live(&self, text: &str) -> Result<LiveFilter, Error> {
        let inputs = Inputs { links: vec![self.options.link] };
        let filters = FilterSet::over(inputs, self.options, Tags::Read);
        filters.set(text)?;
        Ok(LiveFilter::of(filters))
    }
}

//! Class `serve`: evaluates the texts of all readers of a service, and stores the frames that they accept.
//!
//! A node has one filter set. It always has the text [`NOTHING`], which accepts no frame, because an empty set accepts
//! every frame. Cost: that of the pass engine for all different texts together, and the stores of
//! [`table`](mod@crate::table).

use crate::service::{Evaluation, Made, Service};
use fyke_capture::{Account, Interface};
use fyke_filter::Options;
use fyke_filters::{FilterReader, FilterSet, Inputs, Tags};
use fyke_frame::{LinkType, Mask};
use fyke_graph::node::{
    Arrival, Class, Counter, Emitted, MakeError, Needs, Node, NodeError, Parameter, Settings,
};
use std::sync::Arc;

/// Name of the class.
pub const NAME: &str = "serve";
/// A text that accepts no frame: every frame has fewer bytes.
pub const NOTHING: &str = "greater 4294967295";

struct Serve {
    service: Arc<Service>,
    set: FilterSet,
    reader: FilterReader,
}

impl Node for Serve {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        // Before the edits of others are adopted: what the table follows is in the set.
        let Some(mut table) = self.service.table() else { return Ok(Mask::EMPTY) };
        self.reader.refresh();
        let accepted = self.reader.evaluate(arrival.batch(), arrival.mask());
        let accepted = accepted.map_err(NodeError::new)?;
        self.reader.count(accepted);
        let reader = &self.reader;
        let epoch = reader.epoch();
        Ok(table.store(
            arrival.batch(),
            arrival.serial(),
            arrival.mask(),
            accepted,
            epoch,
            |index, into| {
                reader.accepting(index, into);
            },
        ))
    }

    fn account(&mut self, accounts: &[(Interface, Account)]) {
        let dropped = accounts.iter().filter_map(|(_, account)| account.dropped).sum();
        self.service.set_dropped(dropped);
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        let now = self.service.elsewhere();
        if let Some(mut table) = self.service.table() {
            table.finish(now);
        }
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        let Some(table) = self.service.table() else { return Vec::new() };
        let (running, readers, groups) = table.sizes();
        vec![
            Counter::count("readers", readers as u64),
            Counter::count("readers_running", running as u64),
            Counter::count("groups", groups as u64),
            Counter::count("copied_bytes", table.copied()),
        ]
    }

    fn filters(&self) -> Option<&FilterSet> {
        Some(&self.set)
    }
}

/// Reading of texts: live, with the netmask of the interface, as readers read theirs.
pub(crate) fn options(settings: &Settings) -> Options {
    Options {
        link: settings.link().unwrap_or(LinkType::EN10MB),
        live: true,
        netmask: Some(settings.interfaces().first().map_or(0, |interface| interface.netmask)),
        ..Options::default()
    }
}

fn make(service: &Arc<Service>, settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let [interface] = settings.interfaces() else {
        return Err(MakeError::new("", "serves the frames of one interface"));
    };
    let options = options(settings);
    let inputs = Inputs { links: vec![interface.link] };
    let set = FilterSet::over(inputs.clone(), options, Tags::Read);
    set.set(NOTHING).map_err(|error| MakeError::new("", error))?;
    let mut reader = set.reader();
    reader.report_all();
    let evaluation = Evaluation { inputs, options };
    let made = Made { set: set.clone(), evaluation, interface: interface.clone() };
    match service.take(made) {
        true => Ok(Box::new(Serve { service: Arc::clone(service), set, reader })),
        false => Err(MakeError::new("", "one node serves the readers; there is one already")),
    }
}

/// The class, for [`Classes::register_with`](fyke_graph::Classes::register_with) and [`maker`].
pub const CLASS: Class = Class {
    name: NAME,
    summary: "stores the frames that the texts of readers accept, for these readers",
    parameters: &[] as &[Parameter],
    needs: |_| Needs::Filters { also: None },
    check: Some(|_| Ok(())),
    ..Class::NODE
};

/// Makes the node of a service.
pub fn maker(
    service: &Arc<Service>,
) -> impl Fn(&Settings) -> Result<Box<dyn Node>, MakeError> + Send + Sync + 'static {
    let service = Arc::clone(service);
    move |settings| make(&service, settings)
}

//! Prints what the exporters of a world serve over time, as a table: one column a machine, one line a scrape.
//!
//! `cargo run -p gaunt-worlds --example world_series -- FAMILY SEED [--quiet] [METRIC ...]`: each value is the mean of
//! the lines of a machine's pages that begin with METRIC, for counters the change since the scrape before. Without a
//! METRIC it lists the faults, the jobs and the first page of each target.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::{collections::BTreeMap, error::Error};

use gaunt_worlds::{
    draw::{WorldCase, draw_world, world_truths},
    pages::ExporterPages,
    physics::RatePhysics,
    random::RandomKey,
    world::World,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_quiet = words.iter().any(|word| word == "--quiet");
    words.retain(|word| word != "--quiet");
    let [family, seed, metrics @ ..] = words.as_slice() else {
        return Err("usage: world_series FAMILY SEED [--quiet] [METRIC ...]".into());
    };
    let seed: u64 = seed.parse()?;
    let case = if is_quiet {
        WorldCase::Quiet { case: None }
    } else {
        WorldCase::Fault { kind: None, loss: None, course: None, second: false }
    };
    let world = draw_world(family, seed, case)?;
    let key = RandomKey::new(seed).child("run");
    let mut physics = RatePhysics::new(&world.cluster, &world.faults, key.child("physics"))?
        .with_duration_s(world.duration_s);
    let mut pages = ExporterPages::new(&world, key.child("pages"));
    for metric in metrics {
        print_series(&world, &mut physics.clone(), &mut pages.clone(), metric);
    }
    if metrics.is_empty() {
        print_plan(&world, &mut physics, &mut pages);
    }
    Ok(())
}

fn print_plan(world: &World, physics: &mut RatePhysics, pages: &mut ExporterPages) {
    println!("{:#?}\n{:#?}\n{:#?}", world.faults, world.exporters, world.cluster.jobs);
    let names: Vec<&String> = world.exporters.nodes.iter().map(|node| &node.name).collect();
    println!("nodes {names:?}, quiet case {:?}", world.quiet_case);
    for truth in world_truths(world, &vec![None; world.faults.len()]) {
        println!("{} {} {:?}", truth.truth.kind, truth.truth.blamed, truth.truth.limit);
    }
    physics.advance_to(1.0);
    for target in 0..pages.targets().len() {
        let node = pages.targets()[target].node;
        pages.observe(1.0, node, physics.node_state(node));
        let page = pages.scrape(1.0, target, physics.node_state(node)).unwrap_or_default();
        println!("--- {} {:?}\n{page}", names[node], pages.targets()[target].program);
    }
}

fn print_series(world: &World, physics: &mut RatePhysics, pages: &mut ExporterPages, metric: &str) {
    let targets: Vec<usize> = pages.targets().iter().map(|target| target.node).collect();
    let nodes = world.cluster.nodes.len();
    println!("{metric}");
    let names = world.exporters.nodes.iter().map(|node| format!("{:>12.12}", node.name));
    println!("{:>6}{}", "s", names.collect::<String>());
    let mut due: Vec<f64> = (0..targets.len()).map(|target| pages.due_at(target, 0.0)).collect();
    let (mut before, mut line): (BTreeMap<usize, f64>, BTreeMap<usize, f64>) = Default::default();
    let (mut second, mut printed) = (0.0, 0.0);
    let is_counter = metric.contains("total") || metric.contains("VIOLATION");
    while second < world.duration_s {
        second += 1.0;
        physics.advance_to(second);
        for node in 0..nodes {
            pages.observe(second, node, physics.node_state(node));
        }
        for (target, node) in targets.iter().enumerate() {
            if due[target] > second {
                continue;
            }
            due[target] = pages.due_at(target, second);
            let Some(page) = pages.scrape(second, target, physics.node_state(*node)) else {
                continue;
            };
            let values = page.lines().filter(|line| line.starts_with(metric));
            let values: Vec<f64> =
                values.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect();
            if values.is_empty() {
                continue;
            }
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let last = before.insert(*node, mean).unwrap_or(mean);
            line.insert(*node, if is_counter { mean - last } else { mean });
        }
        if second - printed >= world.exporters.scrape_s.max(5.0) {
            printed = second;
            let cells = (0..nodes).map(|node| match line.get(&node) {
                Some(value) => format!("{value:>12.4}"),
                None => format!("{:>12}", "-"),
            });
            println!("{second:>6}{}", cells.collect::<String>());
            line.clear();
        }
    }
}

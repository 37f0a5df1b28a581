//! The second part of the story, for who has a broker: what the two sample queues get of an
//! export that completes and of one that fails.

use outport_relay::broker::{Received, SampleQueues};
use serde_json::{Value, json};

use super::{
    During, Failed,
    story::{LOOK, PATIENCE, Story, indented, member, must_be},
};

impl Story<'_> {
    /// Tells it, and returns the messages.
    pub(super) async fn tell_of_broker(
        &self,
        queues: &SampleQueues,
        completed: &Value,
    ) -> Result<Value, Failed> {
        self.say("\n5. An export that fails: the shop has no such table")?;
        let job = self.submit(json!({ "resource": "refund" }).to_string()).await?;
        let id = member(&job, "exportJobId")?;
        let status = member(&job, "status")?;
        self.say(&format!("   job {id}: {status}"))?;
        let job = self.watch(&id, status).await?;
        must_be(&job, "FAILED")?;
        self.say(&format!("   {}", job["failure"]))?;
        self.say("\n6. What the broker's queues got, sent by a handler as the mail was")?;
        let messages = self.messages(queues, &[member(completed, "exportJobId")?, id]).await?;
        for message in &messages {
            self.say(&format!("   {}", message.queue))?;
            for (name, value) in &message.headers {
                self.say(&format!("     {name}: {value}"))?;
            }
            self.say(&indented(&format!("  {}", message.body)))?;
        }
        Ok(json!(messages))
    }

    /// One message for each of the two jobs, however late it comes.
    async fn messages(
        &self,
        queues: &SampleQueues,
        jobs: &[String; 2],
    ) -> Result<Vec<Received>, Failed> {
        const STEP: &str = "waiting for the messages";
        let taking = async {
            let mut messages = Vec::new();
            while messages.len() < jobs.len() {
                messages.extend(queues.take(jobs).await.during(STEP)?);
                tokio::time::sleep(LOOK).await;
            }
            Ok::<_, Failed>(messages)
        };
        tokio::time::timeout(PATIENCE, taking).await.during(STEP)?
    }
}

import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.util.List;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Version;
import org.springframework.data.mongodb.core.MongoTemplate;
import org.springframework.data.mongodb.repository.MongoRepository;
import org.springframework.data.mongodb.repository.support.MongoRepositoryFactory;

/** A repository's save() and delete(), by Spring Data MongoDB. */
final class WithSpringData {
    private WithSpringData() {}

    static class Fields implements Scenario.Entity {
        @Id String id;
        String name;
        int qty;
        String note;

        @Override
        public Object key() {
            return org.bson.types.ObjectId.isValid(id) ? new org.bson.types.ObjectId(id) : id;
        }

        @Override
        public void setQty(int qty) {
            this.qty = qty;
        }

        @Override
        public void setNote(String note) {
            this.note = note;
        }
    }

    @org.springframework.data.mongodb.core.mapping.Document("spring_plain")
    static final class Plain extends Fields {}

    /** Spring Data increments the version. */
    @org.springframework.data.mongodb.core.mapping.Document("spring_versioned")
    static final class Versioned extends Fields {
        @Version Long version;
    }

    /** Spring Data only stores the version; docward increments it. */
    @org.springframework.data.mongodb.core.mapping.Document("spring_counted")
    static final class Counted extends Fields {
        Long version;
    }

    interface Plains extends MongoRepository<Plain, String> {}

    interface Versions extends MongoRepository<Versioned, String> {}

    interface Counts extends MongoRepository<Counted, String> {}

    record Model<E extends Fields>(String name, Class<E> type, MongoRepository<E, String> repository)
            implements Scenario.Model {
        @Override
        public String collection() {
            return "spring_" + name;
        }

        @Override
        public Scenario.Entity make(String key, String name, int qty, String note) {
            try {
                E entity = type.getDeclaredConstructor().newInstance();
                entity.id = key;
                entity.name = name;
                entity.qty = qty;
                entity.note = note;
                return entity;
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public Scenario.Entity read(String key) {
            return repository.findById(key).orElseThrow();
        }

        @Override
        public Scenario.Entity save(Scenario.Entity entity) {
            return repository.save(type.cast(entity));
        }

        @Override
        public void remove(Scenario.Entity entity) {
            repository.delete(type.cast(entity));
        }
    }

    public static void main(String[] arguments) {
        try (MongoClient client = MongoClients.create(arguments[0])) {
            MongoRepositoryFactory factory = new MongoRepositoryFactory(new MongoTemplate(client, arguments[1]));
            Scenario.run(
                    List.of(arguments),
                    List.of(
                            new Model<>("plain", Plain.class, factory.getRepository(Plains.class)),
                            new Model<>("versioned", Versioned.class, factory.getRepository(Versions.class)),
                            new Model<>("counted", Counted.class, factory.getRepository(Counts.class))));
        }
    }
}
